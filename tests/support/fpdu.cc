#include "support/fpdu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ostream>
#include <sstream>

#include "iwarp/types.h"
#include "wire/mpa.h"

namespace weft::test {

using wire::DdpTagged;
using wire::DdpUntagged;
using wire::RdmapOpcode;

Content text(std::string_view characters) {
  const auto bytes = std::as_bytes(std::span(characters));
  return {bytes.begin(), bytes.end()};
}

Content joined(Bytes first, Bytes second) {
  Content all(first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

Ulpdu tagged(RdmapOpcode opcode, std::uint32_t stag, std::uint64_t offset, Bytes payload,
             bool last) {
  std::array<std::byte, DdpTagged::header_bytes> header;
  DdpTagged{.last = last,
            .rdmap_control = wire::rdmap_control(opcode),
            .stag = stag,
            .tagged_offset = offset}
      .emit(header);
  return {joined(header, payload)};
}

Ulpdu untagged(const DdpUntagged& values, Bytes payload) {
  std::array<std::byte, DdpUntagged::header_bytes> header;
  values.emit(header);
  return {joined(header, payload)};
}

Ulpdu write(std::uint32_t stag, std::uint64_t offset, Bytes payload, bool last) {
  return tagged(RdmapOpcode::write, stag, offset, payload, last);
}

Ulpdu control(std::uint32_t stag, wire::ControlWord word, std::uint64_t value) {
  return write(stag, wire::control_word_offset(word), wire::control_word_to_bytes(value));
}

Ulpdu read_response(std::uint32_t stag, std::uint64_t offset, Bytes payload, bool last) {
  return tagged(RdmapOpcode::read_response, stag, offset, payload, last);
}

Ulpdu send(std::uint32_t msn, Bytes payload, Part part, RdmapOpcode opcode,
           std::uint32_t invalidate_stag) {
  return untagged({.last = part.last,
                   .rdmap_control = wire::rdmap_control(opcode),
                   .invalidate_stag = invalidate_stag,
                   .queue = wire::queue::send,
                   .msn = msn,
                   .message_offset = part.offset},
                  payload);
}

namespace {

template <typename Value>
Ulpdu message(RdmapOpcode opcode, std::uint32_t queue, std::uint32_t msn, const Value& value) {
  std::array<std::byte, Value::header_bytes> payload;
  value.emit(payload);
  return untagged(
      {.last = true, .rdmap_control = wire::rdmap_control(opcode), .queue = queue, .msn = msn},
      payload);
}

}  // namespace

Ulpdu immediate(std::uint32_t msn, std::uint32_t data_be, RdmapOpcode opcode) {
  return message(opcode, wire::queue::send, msn, wire::ImmediateData{.data_be = data_be});
}

Ulpdu read_request(std::uint32_t msn, const wire::ReadRequest& request) {
  return message(RdmapOpcode::read_request, wire::queue::request, msn, request);
}

Ulpdu empty_read(std::uint32_t msn) {
  return read_request(msn,
                      {.sink_stag = iwarp::no_memory_stag, .source_stag = iwarp::no_memory_stag});
}

Ulpdu empty_response() {
  return read_response(iwarp::no_memory_stag, 0, {});
}

Ulpdu atomic_request(std::uint32_t msn, const wire::AtomicRequest& request) {
  return message(RdmapOpcode::atomic_request, wire::queue::request, msn, request);
}

Ulpdu atomic_response(std::uint32_t msn, std::uint32_t request_id, std::uint64_t original) {
  return message(RdmapOpcode::atomic_response, wire::queue::atomic_response, msn,
                 wire::AtomicResponse{.request_id = request_id, .original_value = original});
}

Ulpdu terminate(const wire::Terminate& values) {
  Content payload(values.size());
  values.emit(payload);
  return untagged({.last = true,
                   .rdmap_control = wire::rdmap_control(RdmapOpcode::terminate),
                   .queue = wire::queue::terminate},
                  payload);
}

Ulpdu terminate(wire::TerminateCode code) {
  return terminate(wire::Terminate{.code = code});
}

Ulpdu terminate(wire::TerminateCode code, const Ulpdu& culprit, bool with_request) {
  wire::Terminate values{.code = code};
  values.ddp_segment_bytes = static_cast<std::uint16_t>(culprit.bytes.size());
  values.ddp_header_bytes = wire::ddp_is_tagged(culprit.bytes.front()) ? DdpTagged::header_bytes
                                                                       : DdpUntagged::header_bytes;
  std::copy_n(culprit.bytes.begin(), values.ddp_header_bytes, values.ddp_header.begin());
  values.has_read_request = with_request;
  if (with_request) {
    values.read_request =
        *wire::ReadRequest::parse(Bytes(culprit.bytes).subspan(DdpUntagged::header_bytes));
  }
  return terminate(values);
}

Content fpdu(const Ulpdu& ulpdu, bool crc) {
  Content bytes(wire::fpdu_bytes(ulpdu.bytes.size()));
  store_be(bytes.data(), static_cast<std::uint16_t>(ulpdu.bytes.size()));
  std::ranges::copy(ulpdu.bytes, bytes.begin() + wire::fpdu_length_bytes);
  const auto covered = Bytes(bytes).first(bytes.size() - wire::fpdu_crc_bytes);
  if (crc) wire::store_fpdu_crc(bytes.data() + covered.size(), crc32c(covered));
  return bytes;
}

std::vector<Ulpdu> split(Bytes stream, bool crc) {
  std::vector<Ulpdu> all;
  while (!stream.empty()) {
    const auto view = wire::FpduView::check(stream);
    if (!view) {
      ADD_FAILURE() << "an FPDU is cut off: " << stream.size() << " bytes";
      break;
    }
    EXPECT_TRUE(!crc || view->crc_good());
    const auto ulpdu = view->ulpdu();
    const auto pad = stream.first(view->size() - wire::fpdu_crc_bytes)
                         .subspan(wire::fpdu_length_bytes + ulpdu.size());
    // RFC 5044 §4.1: the pad is zero.
    EXPECT_TRUE(std::ranges::all_of(pad, [](std::byte byte) { return byte == std::byte{0}; }));
    all.push_back({{ulpdu.begin(), ulpdu.end()}});
    stream = stream.subspan(view->size());
  }
  return all;
}

namespace {

void show_payload(std::ostream& out, Bytes payload) {
  out << " [" << payload.size() << "]";
  out << std::hex;
  for (std::size_t i = 0; i < std::min<std::size_t>(payload.size(), 64); ++i) {
    out << (i % 4 == 0 ? " " : "") << (std::to_integer<int>(payload[i]) >> 4)
        << (std::to_integer<int>(payload[i]) & 0x0F);
  }
  out << std::dec;
}

}  // namespace

std::string describe(const Ulpdu& ulpdu) {
  std::ostringstream out;
  if (const auto view = wire::TaggedView::check(ulpdu.bytes)) {
    out << describe(wire::rdmap_opcode(view->rdmap_control())) << std::hex << " STag "
        << view->stag() << " TO " << view->tagged_offset() << std::dec
        << (view->last() ? " last" : "");
    show_payload(out, view->payload());
  } else if (const auto other = wire::UntaggedView::check(ulpdu.bytes)) {
    out << describe(wire::rdmap_opcode(other->rdmap_control())) << " QN " << other->queue()
        << " MSN " << other->msn() << " MO " << other->message_offset()
        << (other->last() ? " last" : "");
    const auto terminate = wire::Terminate::parse(other->payload());
    if (other->queue() == wire::queue::terminate && terminate) {
      out << " " << describe(terminate->code);
    }
    show_payload(out, other->payload());
  } else {
    out << "not a DDP segment";
    show_payload(out, ulpdu.bytes);
  }
  return out.str();
}

void PrintTo(const Ulpdu& ulpdu, std::ostream* out) {
  *out << describe(ulpdu);
}

}  // namespace weft::test
