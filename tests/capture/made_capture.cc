#include "capture/made_capture.h"

#include <algorithm>
#include <array>

#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/markers.h"
#include "wire/pcap.h"
#include "wire/tcp.h"

namespace weft::capture::test {
namespace {

using wire::tcp_flag::ack;
using wire::tcp_flag::fin;
using wire::tcp_flag::psh;
using wire::tcp_flag::rst;
using wire::tcp_flag::syn;

constexpr std::int64_t first_ns = 1'700'000'000'000'000'000;
constexpr std::int64_t step_ns = 10'000;

template <typename Header>
void append(Content& out, const Header& header, std::size_t bytes) {
  out.resize(out.size() + bytes);
  header.emit(MutableBytes(out).last(bytes));
}

Content ip_header(const TcpOptions& options, Side side, std::size_t payload_bytes) {
  const std::uint8_t from = side == Side::a ? options.host_a : options.host_b;
  const std::uint8_t to = side == Side::a ? options.host_b : options.host_a;
  Content out;
  if (options.ipv6) {
    wire::Ipv6Header header{.payload_bytes = static_cast<std::uint16_t>(payload_bytes)};
    header.source = {std::byte{0xFD}};
    header.destination = {std::byte{0xFD}};
    header.source[15] = std::byte{from};
    header.destination[15] = std::byte{to};
    append(out, header, wire::Ipv6Header::header_bytes);
  } else {
    wire::Ipv4Header header{.total_bytes = static_cast<std::uint16_t>(20 + payload_bytes)};
    header.dont_fragment = true;
    header.source = {std::byte{10}, std::byte{0}, std::byte{0}, std::byte{from}};
    header.destination = {std::byte{10}, std::byte{0}, std::byte{0}, std::byte{to}};
    append(out, header, header.size());
  }
  return out;
}

}  // namespace

void feed(Analysis& analysis, const MadeCapture& capture) {
  for (const MadePacket& packet : capture) {
    analysis.add({.time_ns = packet.time_ns,
                  .link_type = packet.link_type,
                  .bytes = packet.bytes,
                  .wire_bytes = packet.wire_bytes});
  }
  analysis.finish();
}

void analyse(const MadeCapture& capture, TrafficSink* traffic, OperationSink* operations) {
  Analysis analysis;
  if (traffic) analysis.add_sink(*traffic);
  if (operations) analysis.add_operations(*operations);
  feed(analysis, capture);
}

Content pcap_file(const MadeCapture& capture) {
  constexpr std::int64_t second_ns = 1'000'000'000;
  Content file;
  append(file, wire::PcapHeader{.nanoseconds = true, .snap_bytes = 262'144},
         wire::PcapHeader::header_bytes);
  for (const MadePacket& packet : capture) {
    const wire::PcapRecord record{
        .seconds = static_cast<std::uint32_t>(packet.time_ns / second_ns),
        .fraction = static_cast<std::uint32_t>(packet.time_ns % second_ns),
        .captured_bytes = static_cast<std::uint32_t>(packet.bytes.size()),
        .original_bytes = static_cast<std::uint32_t>(packet.wire_bytes)};
    file.resize(file.size() + wire::PcapRecord::header_bytes);
    record.emit(MutableBytes(file).last(wire::PcapRecord::header_bytes), wire::ByteOrder::little);
    file.insert(file.end(), packet.bytes.begin(), packet.bytes.end());
  }
  return file;
}

MadeCapture cut(MadeCapture capture, std::size_t snap_bytes) {
  for (MadePacket& packet : capture) {
    if (packet.bytes.size() > snap_bytes) packet.bytes.resize(snap_bytes);
  }
  return capture;
}

// --- TCP -----------------------------------------------------------------------------------------

Content TcpTalk::frame(Side side, std::uint8_t flags, Bytes payload) {
  const Half& own = side == Side::a ? a_ : b_;
  const Half& peer = side == Side::a ? b_ : a_;
  wire::TcpHeader tcp{.source_port = side == Side::a ? options_.port_a : options_.port_b,
                      .destination_port = side == Side::a ? options_.port_b : options_.port_a,
                      .sequence = own.next,
                      .acknowledgement = (flags & ack) != 0 ? peer.next : 0,
                      .flags = flags,
                      .window = 65'535,
                      .mss_bytes = {},
                      .window_scale = {}};
  Content out;
  append(
      out,
      wire::EthernetHeader{.destination = {},
                           .source = {},
                           .type = options_.ipv6 ? wire::EtherType::ipv6 : wire::EtherType::ipv4},
      wire::EthernetHeader::header_bytes);
  const Content ip = ip_header(options_, side, tcp.size() + payload.size());
  out.insert(out.end(), ip.begin(), ip.end());
  append(out, tcp, tcp.size());
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

void TcpTalk::segment(Side side, Bytes bytes, std::uint8_t flags) {
  const auto time_ns = first_ns + static_cast<std::int64_t>(capture_.size()) * step_ns;
  Content packet = frame(side, flags, bytes);
  const std::size_t size = packet.size();
  capture_.push_back({.time_ns = time_ns, .bytes = std::move(packet), .wire_bytes = size});
  auto& next = (side == Side::a ? a_ : b_).next;
  next += static_cast<std::uint32_t>(bytes.size());
  if ((flags & (syn | fin)) != 0) ++next;
}

void TcpTalk::handshake() {
  segment(Side::a, {}, syn);
  segment(Side::b, {}, syn | ack);
  segment(Side::a, {}, ack);
}

void TcpTalk::send(Side side, Bytes bytes) {
  while (!bytes.empty()) {
    const Bytes part = bytes.first(std::min(bytes.size(), options_.mss_bytes));
    segment(side, part, psh | ack);
    bytes = bytes.subspan(part.size());
  }
}

void TcpTalk::acknowledge(Side side) {
  segment(side, {}, ack);
}

void TcpTalk::finish(Side side) {
  segment(side, {}, fin | ack);
}

void TcpTalk::reset(Side side) {
  segment(side, {}, rst | ack);
}

// --- iWARP ---------------------------------------------------------------------------------------

void IwarpTalk::connect() {
  tcp_.handshake();
  for (const Side side : {Side::a, Side::b}) {
    const bool request = side == Side::a;
    wire::MpaFrame frame{.kind = request ? wire::MpaKind::request : wire::MpaKind::reply,
                         .markers = request ? mpa_.markers_a : mpa_.markers_b,
                         .crc = mpa_.crc,
                         .reject = !request && mpa_.reject,
                         .enhanced = mpa_.revision == 2,
                         .words = request ? mpa_.words_a : mpa_.words_b,
                         .revision = mpa_.revision,
                         .private_data_bytes = 0};
    if (frame.words) frame.mark = request ? wire::MpaMark::request : wire::MpaMark::reply;
    const Content& hello = request ? mpa_.hello_a : mpa_.hello_b;
    if (frame.enhanced) frame.private_data_bytes = wire::MpaEnhanced::header_bytes;
    frame.private_data_bytes += static_cast<std::uint16_t>(hello.size());
    Content bytes(wire::MpaFrame::header_bytes + frame.private_data_bytes);
    std::ranges::copy(hello, bytes.end() - static_cast<std::ptrdiff_t>(hello.size()));
    frame.emit(bytes);
    if (frame.enhanced) {
      wire::MpaEnhanced{.ird = 16, .ord = 16}.emit(
          MutableBytes(bytes).subspan(wire::MpaFrame::header_bytes));
    }
    tcp_.send(side, bytes);
  }
}

void IwarpTalk::fpdu(Side side, const Ulpdu& ulpdu) {
  Half& own = side == Side::a ? a_ : b_;
  Content bytes = weft::test::fpdu(ulpdu, mpa_.crc);
  const bool markers = side == Side::a ? mpa_.markers_b : mpa_.markers_a;
  if (markers) {
    Content marked(wire::marked_bytes(own.position, bytes.size()));
    (void)wire::insert_markers(own.position, bytes, marked);
    bytes = std::move(marked);
  }
  own.position += bytes.size();
  if (mpa_.aligned) return tcp_.send(side, bytes);
  own.unsent.insert(own.unsent.end(), bytes.begin(), bytes.end());
  const std::size_t whole = own.unsent.size() / tcp_.mss_bytes() * tcp_.mss_bytes();
  tcp_.send(side, Bytes(own.unsent).first(whole));
  own.unsent.erase(own.unsent.begin(), own.unsent.begin() + static_cast<std::ptrdiff_t>(whole));
}

void IwarpTalk::flush(Side side) {
  Half& own = side == Side::a ? a_ : b_;
  tcp_.send(side, own.unsent);
  own.unsent.clear();
}

void IwarpTalk::close() {
  flush(Side::a);
  flush(Side::b);
  tcp_.finish(Side::a);
  tcp_.finish(Side::b);
  tcp_.acknowledge(Side::a);
}

// --- Known bytes ---------------------------------------------------------------------------------

std::byte memory_byte(std::uint32_t key, std::uint64_t address) {
  std::uint64_t mixed = (address + 1) * 0x9E3779B97F4A7C15U ^ key * 0xD6E8FEB86659FD93U;
  mixed ^= mixed >> 29;
  return static_cast<std::byte>(mixed * 0xBF58476D1CE4E5B9U >> 56);
}

std::byte message_byte(std::uint64_t message, std::uint64_t offset) {
  return memory_byte(static_cast<std::uint32_t>(message) ^ 0x5EED5EEDU, offset);
}

Content memory_bytes(std::uint32_t key, std::uint64_t address, std::size_t bytes) {
  Content out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = memory_byte(key, address + i);
  return out;
}

Content message_bytes(std::uint64_t message, std::size_t bytes) {
  Content out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = message_byte(message, i);
  return out;
}

void Operator::send(std::size_t bytes) {
  const Content content = message_bytes(++sends_, bytes);
  std::size_t at = 0;
  do {
    const std::size_t part = std::min(mulpdu_bytes_, bytes - at);
    const bool last = at + part == bytes;
    talk_.fpdu(side_, weft::test::send(sends_, Bytes(content).subspan(at, part),
                                       {.offset = static_cast<std::uint32_t>(at), .last = last}));
    at += part;
  } while (at < bytes);
  talk_.flush(side_);
}

void Operator::write(std::uint32_t key, std::uint64_t address, std::size_t bytes) {
  const Content content = memory_bytes(key, address, bytes);
  std::size_t at = 0;
  do {
    const std::size_t part = std::min(mulpdu_bytes_, bytes - at);
    talk_.fpdu(side_, weft::test::write(key, address + at, Bytes(content).subspan(at, part),
                                        at + part == bytes));
    at += part;
  } while (at < bytes);
  talk_.flush(side_);
}

void Operator::read(std::uint32_t key, std::uint64_t address, std::size_t bytes) {
  constexpr std::uint32_t sink_key = 0xA0B0C0D0;
  const std::uint64_t sink_address = 0x7000'0000 + (one_sink_ ? 0 : requests_ * 0x100'0000ULL);
  talk_.fpdu(side_,
             weft::test::read_request(++requests_, {.sink_stag = sink_key,
                                                    .sink_offset = sink_address,
                                                    .size_bytes = static_cast<std::uint32_t>(bytes),
                                                    .source_stag = key,
                                                    .source_offset = address}));
  talk_.flush(side_);
  const Content content = memory_bytes(key, address, bytes);
  std::size_t at = 0;
  do {
    const std::size_t part = std::min(mulpdu_bytes_, bytes - at);
    talk_.fpdu(other(side_),
               weft::test::read_response(sink_key, sink_address + at,
                                         Bytes(content).subspan(at, part), at + part == bytes));
    at += part;
  } while (at < bytes);
  talk_.flush(other(side_));
}

void Operator::fetch_add(std::uint32_t key, std::uint64_t address, std::uint64_t add,
                         std::uint64_t original) {
  const std::uint32_t id = ++requests_;
  talk_.fpdu(
      side_,
      weft::test::atomic_request(
          id, {.request_id = id, .stag = key, .tagged_offset = address, .add_or_swap = add}));
  talk_.flush(side_);
  talk_.fpdu(other(side_), weft::test::atomic_response(++atomic_answers_, id, original));
  talk_.flush(other(side_));
}

}  // namespace weft::capture::test
