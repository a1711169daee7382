#include "device/tap/capture_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "capture_reader.h"
#include "capture_support.h"
#include "wire/mpa.h"
#include "wire/rdmap.h"

namespace weft::device {
namespace {

using wire::RdmapOpcode;

constexpr std::uint16_t own_port = 40'000;
constexpr std::uint16_t other_port = 28'672;
const auto local4 = address_of("127.0.0.1", own_port);

std::vector<std::byte> fpdu(RdmapOpcode opcode, std::size_t ulpdu_bytes) {
  std::vector<std::byte> bytes = pattern(wire::fpdu_bytes(ulpdu_bytes));
  store_be(bytes.data(), static_cast<std::uint16_t>(ulpdu_bytes));
  bytes[3] = static_cast<std::byte>(wire::rdmap_control(opcode));
  return bytes;
}

struct LoopTapTest : CaptureTest {
  const std::vector<std::vector<std::byte>> fpdus{
      fpdu(RdmapOpcode::write, 33),           fpdu(RdmapOpcode::send, 18),
      fpdu(RdmapOpcode::read_request, 46),    fpdu(RdmapOpcode::read_response, 1'000),
      fpdu(RdmapOpcode::atomic_request, 70),  fpdu(RdmapOpcode::read_response, 14),
      fpdu(RdmapOpcode::atomic_response, 32), fpdu(RdmapOpcode::send, 20)};

  [[nodiscard]] std::vector<std::byte> stream() const {
    std::vector<std::byte> all;
    for (const auto& one : fpdus) all.insert(all.end(), one.begin(), one.end());
    return all;
  }
  // The bytes sent from the port, after the MPA frame.
  [[nodiscard]] std::vector<std::byte> sent_from(std::uint16_t port) const {
    std::vector<std::byte> all;
    for (const auto& packet : read_capture(path())) {
      if (packet.tcp.source_port != port) continue;
      all.insert(all.end(), packet.payload.begin(), packet.payload.end());
    }
    constexpr std::size_t frame_bytes =
        wire::MpaFrame::header_bytes + wire::MpaEnhanced::header_bytes;
    const auto frame = wire::MpaFrame::parse(all);
    EXPECT_TRUE(frame);
    if (frame) {
      EXPECT_EQ(frame->kind, port == own_port ? wire::MpaKind::request : wire::MpaKind::reply);
      EXPECT_TRUE(frame->crc);
    }
    all.erase(all.begin(), all.begin() + frame_bytes);
    return all;
  }
  [[nodiscard]] std::vector<std::byte> of(const std::vector<std::size_t>& indexes) const {
    std::vector<std::byte> all;
    for (const auto index : indexes)
      all.insert(all.end(), fpdus[index].begin(), fpdus[index].end());
    return all;
  }
};

TEST_F(LoopTapTest, ShowsWhoAsksAndWhoAnswersInAnyChunking) {
  const auto all = stream();
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{3}, std::size_t{47}, all.size()}) {
    {
      const auto file = open(path());
      LoopTap tap(file, local4, {.answering_port = other_port, .crc = true, .read_depth = 16});
      for (std::size_t at = 0; at < all.size(); at += chunk) {
        const iovec piece = piece_of(Bytes(all).subspan(at));
        tap.sent({&piece, 1}, std::min(chunk, all.size() - at));
      }
      tap.closed();
    }
    EXPECT_EQ(sent_from(own_port), of({0, 1, 2, 4, 7})) << chunk;
    EXPECT_EQ(sent_from(other_port), of({3, 5, 6})) << chunk;
    // the acknowledgement of the second FIN
    EXPECT_EQ(read_capture(path()).back().tcp.flags, wire::tcp_flag::ack);
  }
}

TEST_F(LoopTapTest, WhatIsLeftOfAnFpduIsWrittenAtTheEnd) {
  const auto all = stream();
  {
    const auto file = open(path());
    LoopTap tap(file, local4, {.answering_port = other_port});
    const iovec piece = piece_of(all);
    tap.sent({&piece, 1}, fpdus[0].size() + 10);
    tap.closed();
  }
  const Bytes wanted = Bytes(all).first(fpdus[0].size() + 10);
  EXPECT_EQ(sent_from(own_port), std::vector<std::byte>(wanted.begin(), wanted.end()));
}

TEST(FpduBoundary, IsReachedBehindEachFpduInAnyChunking) {
  std::vector<std::byte> stream;
  std::vector<std::size_t> ends{0};
  for (const std::size_t bytes : {18U, 100U, 21U, 65'000U}) {
    const auto one = fpdu(RdmapOpcode::send, bytes);
    stream.insert(stream.end(), one.begin(), one.end());
    ends.push_back(stream.size());
  }
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{100'000}}) {
    FpduBoundary boundary;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t some = std::min(chunk, stream.size() - at);
      const auto piece = piece_of(Bytes(stream).subspan(at, some));
      boundary.pass({&piece, 1}, some);
      at += some;
      EXPECT_EQ(boundary.reached(), std::ranges::find(ends, at) != ends.end()) << at;
    }
  }
}

}  // namespace
}  // namespace weft::device
