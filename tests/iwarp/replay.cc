#include "replay.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "iwarp/handshake.h"
#include "support/pump.h"

namespace weft::test {

using iwarp::LocalSlice;
using iwarp::Operation;
using wire::RdmapOpcode;

namespace {

RdmapOpcode opcode_of(const Ulpdu& ulpdu) {
  return wire::rdmap_opcode(std::to_integer<std::uint8_t>(ulpdu.bytes.at(1)));
}

bool is_last(const Ulpdu& ulpdu) {
  return wire::ddp_is_last(ulpdu.bytes.at(0));
}

wire::ReadRequest read_request_of(const Ulpdu& ulpdu) {
  return *wire::ReadRequest::parse(wire::UntaggedView::check(ulpdu.bytes)->payload());
}

bool is_send(RdmapOpcode opcode) {
  return opcode >= RdmapOpcode::send && opcode <= RdmapOpcode::send_solicited_invalidate;
}

Content payload_of(const Ulpdu& ulpdu) {
  const auto tagged = wire::TaggedView::check(ulpdu.bytes);
  const auto payload =
      tagged ? tagged->payload() : wire::UntaggedView::check(ulpdu.bytes)->payload();
  return {payload.begin(), payload.end()};
}

}  // namespace

Replay::Replay(const Flow& flow, Side side, const Choices& choices)
    : flow_(flow),
      side_(side),
      choices_(choices),
      own_(stream_of(flow, side)),
      others_(stream_of(flow, other(side))) {
  learn_from_other();
  learn_from_own();
  learn_answers();
}

void Replay::touch(std::uint32_t stag, std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return;
  Extent& extent = extents_[stag];
  extent.begin = std::min(extent.begin, offset);
  extent.end = std::max(extent.end, offset + length);
}

void Replay::learn_from_other() {
  for (const auto& [ulpdu, record] : others_.fpdus) {
    if (opcode_of(ulpdu) == RdmapOpcode::write) {
      const auto view = wire::TaggedView::check(ulpdu.bytes);
      touch(view->stag(), view->tagged_offset(), view->payload().size());
      if (!view->payload().empty()) written_.push_back(view->stag());
    } else if (opcode_of(ulpdu) == RdmapOpcode::read_request) {
      const auto request = read_request_of(ulpdu);
      touch(request.source_stag, request.source_offset, request.size_bytes);
    }
  }
}

void Replay::learn_from_own() {
  for (const auto& [ulpdu, record] : own_.fpdus) {
    if (opcode_of(ulpdu) != RdmapOpcode::read_request) continue;
    const auto request = read_request_of(ulpdu);
    touch(request.sink_stag, request.sink_offset, request.size_bytes);
    sinks_.push_back({.address = request.sink_offset,
                      .length_bytes = request.size_bytes,
                      .lkey = request.sink_stag});
  }
}

void Replay::add_memory(std::uint32_t stag, std::uint64_t address, Bytes content) {
  Region& added = host.add(content.size(), {}, stag, address);
  added.put(0, content);
  extents_.erase(stag);
}

Region& Replay::region(std::uint32_t stag) {
  return *std::ranges::find(host.regions, stag, &Region::rkey);
}

void Replay::learn_answers() {
  for (const auto& [ulpdu, record] : others_.fpdus) {
    if (opcode_of(ulpdu) != RdmapOpcode::read_request) continue;
    const auto request = read_request_of(ulpdu);
    answers_.push_back({record, request.source_stag, request.source_offset});
  }
  std::size_t next = 0;
  for (const auto& [ulpdu, record] : own_.fpdus) {
    if (opcode_of(ulpdu) != RdmapOpcode::read_response || next == answers_.size()) continue;
    answers_[next].content = joined(answers_[next].content, payload_of(ulpdu));
    if (is_last(ulpdu)) ++next;
  }
}

// The memory now has what this side answers next.
void Replay::fill_sources(std::size_t record) {
  for (const auto& answer : answers_) {
    if (answer.record != record || answer.content.empty()) continue;
    Region& source = region(answer.stag);
    source.put(answer.offset - source.address(), answer.content);
  }
}

void Replay::post_receives() {
  for (const auto& [ulpdu, record] : others_.fpdus) {
    if (!is_send(opcode_of(ulpdu)) || !is_last(ulpdu)) continue;
    Region& to = host.add(choices_.receive_bytes);
    host.post_receive(receive_regions_.size(), {to.slice()});
    receive_regions_.push_back(&to);
  }
}

// Both frames are those of the capture. siw sets a reserved flag, which is ignored.
void Replay::shake_hands() {
  const auto own = *wire::MpaFrameView::check(own_.frame);
  const auto data = own.enhanced().value_or(wire::MpaEnhanced{});
  const iwarp::HandshakeOptions options{.revision = own.frame().revision,
                                        .crc = own.frame().crc,
                                        .markers = own.frame().markers,
                                        .peer_to_peer = data.peer_to_peer,
                                        .ird = data.ird,
                                        .ord = data.ord,
                                        .max_ird = data.ird};
  const auto finish = [&](const iwarp::Handshake& handshake) {
    auto sent = own_.frame;
    sent[16] &= std::byte{0xF0};
    EXPECT_EQ(Content(handshake.output().begin(), handshake.output().end()), sent);
    ASSERT_FALSE(handshake.failed()) << describe(handshake.failure());
    const auto& agreed = handshake.negotiated();
    crc_ = agreed.crc;
    connection_ = std::make_unique<iwarp::Connection>(
        iwarp::Connection::Options{.initiator = side_ == Side::initiator,
                                   .crc = agreed.crc,
                                   .send_markers = agreed.send_markers,
                                   .acknowledge = choices_.acknowledge,
                                   .ird = agreed.ird,
                                   .wire_ord = agreed.ord,
                                   .ord = agreed.ord,
                                   .rtr = agreed.rtr,
                                   .mulpdu_bytes = choices_.mulpdu_bytes},
        host);
  };
  if (side_ == Side::initiator) {
    iwarp::ActiveHandshake active(options, own.user_data());
    active.input(others_.frame);
    EXPECT_TRUE(active.accepted());
    finish(active);
  } else {
    iwarp::PassiveHandshake passive(options);
    passive.input(others_.frame);
    ASSERT_TRUE(passive.requested());
    passive.accept(data.ird, data.ord, own.user_data());
    finish(passive);
  }
}

// Posts the requests with their first segment in this record.
void Replay::post_from(std::size_t record) {
  while (next_own_ < own_.fpdus.size() && own_.fpdus[next_own_].record <= record) {
    std::size_t last = next_own_;
    while (!is_last(own_.fpdus[last].ulpdu)) ++last;
    post_message(next_own_, last);
    next_own_ = last + 1;
  }
}

void Replay::post_message(std::size_t first, std::size_t last) {
  const Ulpdu& head = own_.fpdus[first].ulpdu;
  const RdmapOpcode opcode = opcode_of(head);
  iwarp::WorkRequest request{.wr_id = first};
  LocalSlice slice;
  if (opcode == RdmapOpcode::read_request) {
    const auto read = read_request_of(head);
    request.operation = Operation::read;
    request.rkey = read.source_stag;
    request.remote_address = read.source_offset;
    slice = {.address = read.sink_offset, .length_bytes = read.size_bytes, .lkey = read.sink_stag};
  } else if (opcode == RdmapOpcode::write || is_send(opcode)) {
    Content content;
    for (std::size_t i = first; i <= last; ++i) {
      content = joined(content, payload_of(own_.fpdus[i].ulpdu));
    }
    slice = host.add(content).slice();
    const auto tagged = wire::TaggedView::check(head.bytes);
    request.operation = Operation::write;
    if (tagged) {
      request.rkey = tagged->stag();
      request.remote_address = tagged->tagged_offset();
    } else {
      request.rkey = wire::UntaggedView::check(head.bytes)->invalidate_stag();
      const bool invalidate = opcode == RdmapOpcode::send_invalidate ||
                              opcode == RdmapOpcode::send_solicited_invalidate;
      request.operation = invalidate ? Operation::send_invalidate : Operation::send;
      request.solicited =
          opcode == RdmapOpcode::send_solicited || opcode == RdmapOpcode::send_solicited_invalidate;
    }
  } else {
    return;  // an answer, or a Terminate: the core's own business
  }
  request.slices = {&slice, 1};
  EXPECT_EQ(connection_->post(request), iwarp::Requester::Posted::ok);
}

void Replay::collect() {
  for (auto& ulpdu : split(drain(*connection_), crc_)) sent_.push_back(std::move(ulpdu));
}

void Replay::run(const std::function<void()>& after_record) {
  for (const auto& [stag, extent] : extents_) {
    host.add(extent.end - extent.begin, {}, stag, extent.begin);
  }
  post_receives();
  shake_hands();
  if (!connection_) return;

  std::size_t skip = others_.frame.size();
  for (std::size_t i = 0; i < flow_.size(); ++i) {
    if (flow_[i].from == side_) {
      post_from(i);
    } else {
      fill_sources(i);
      const std::size_t frame_part = std::min(skip, flow_[i].bytes.size());
      skip -= frame_part;
      const auto bytes = Bytes(flow_[i].bytes).subspan(frame_part);
      const std::size_t fed = feed(*connection_, bytes);
      EXPECT_TRUE(fed == bytes.size() || connection_->ended());
    }
    collect();
    if (flow_[i].from != side_) after_record();
  }
}

std::vector<Ulpdu> Replay::recorded() const {
  std::vector<Ulpdu> all;
  for (const auto& [ulpdu, record] : own_.fpdus) {
    const bool skipped = choices_.without_terminates && opcode_of(ulpdu) == RdmapOpcode::terminate;
    if (!skipped) all.push_back(ulpdu);
  }
  return all;
}

void Replay::check_sent() const {
  EXPECT_EQ(sent_, recorded());
}

Content Replay::received(std::size_t index) const {
  const auto& completion = host.receives.at(index);
  return receive_regions_.at(completion.wr_id)->copy(0, completion.length_bytes);
}

}  // namespace weft::test
