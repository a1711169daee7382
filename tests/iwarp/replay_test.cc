// Captures of Linux's siw, replayed with the core in place of either side. The captures show which
// bytes were sent; the output of the programs is the second reference.
#include "replay.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <string>

namespace weft::test {
namespace {

using iwarp::Status;

std::uint32_t adler(Bytes bytes) {
  return static_cast<std::uint32_t>(adler32(adler32(0, nullptr, 0),
                                            reinterpret_cast<const Bytef*>(bytes.data()),
                                            static_cast<uInt>(bytes.size())));
}

std::vector<Status> statuses(const MemoryHost& host) {
  std::vector<Status> all;
  for (const auto& completion : host.sends) all.push_back(completion.status);
  return all;
}

// --- rping ---------------------------------------------------------------------------------------

// The output of both sides of `rping -C 5 -v -V`.
const std::vector<std::string> pings = {
    R"(rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqr)",
    R"(rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqrs)",
    R"(rdma-ping-2: CDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqrst)",
    R"(rdma-ping-3: DEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqrstu)",
    R"(rdma-ping-4: EFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqrstuv)",
};

std::string string_in(Region& region) {
  const auto* characters = reinterpret_cast<const char*>(region.bytes().data());
  return std::string(characters, strnlen(characters, region.size()));
}

// The strings that were in the memory of these STags, in order, each once.
class Seen {
 public:
  void look(Replay& replay, const std::vector<std::uint32_t>& stags) {
    for (const auto stag : stags) {
      const auto now = string_in(replay.region(stag));
      if (!now.empty() && (all.empty() || all.back() != now)) all.push_back(now);
    }
  }
  std::vector<std::string> all;
};

class Rping : public testing::TestWithParam<const char*> {};

// The server reads each string from the client, and writes it back.
TEST_P(Rping, Server) {
  const auto flows = load_flows(GetParam());
  ASSERT_EQ(flows.size(), 1U);
  Replay replay(flows[0], Side::responder);
  Seen seen;
  std::vector<std::uint32_t> stags;
  for (const auto& sink : replay.sinks()) stags.push_back(sink.lkey);
  replay.run([&] { seen.look(replay, stags); });
  replay.check_sent();
  EXPECT_EQ(seen.all, pings);
  EXPECT_EQ(replay.host.ready_calls, 1);
  EXPECT_TRUE(std::ranges::all_of(statuses(replay.host),
                                  [](Status status) { return status == Status::success; }));
  EXPECT_TRUE(replay.connection().idle());
}

TEST_P(Rping, Client) {
  const auto flows = load_flows(GetParam());
  ASSERT_EQ(flows.size(), 1U);
  Replay replay(flows[0], Side::initiator);
  Seen seen;
  replay.run([&] { seen.look(replay, replay.written()); });
  replay.check_sent();
  EXPECT_EQ(seen.all, pings);
  EXPECT_TRUE(replay.connection().idle());
}

INSTANTIATE_TEST_SUITE_P(Captures, Rping,
                         testing::Values("siw_rping", "siw_crc_rping", "siw_rping_ipv6"),
                         [](const auto& given) { return std::string(given.param); });

// --- All sizes -----------------------------------------------------------------------------------

struct Sum {
  std::uint32_t length;
  std::uint32_t adler;
};

// Length and adler32 of each message, as the test program printed them on both sides.
const std::vector<Sum> sent_sums = {
    {0, 0x00000001},    {1, 0x000f000f},    {2, 0x005d0040},    {3, 0x011b0094},
    {4, 0x027a010b},    {5, 0x04ab01a5},    {63, 0x5a1b201b},   {64, 0x723c1fe1},
    {65, 0x81c61fca},   {1023, 0x87fffda3}, {1024, 0xc61efe10}, {1025, 0x94cdfea0},
    {1435, 0xbb02c945}, {1436, 0x88abca41}, {2047, 0x734bfb80}, {2048, 0xdf4cfc2e},
    {2049, 0x6c1efcff}, {4096, 0xbbd7f86a}, {9999, 0xb5427114}, {65535, 0x53dc8683}};
const std::vector<Sum> inline_sums = {{0, 0x00000001},  {4, 0x0072003b},  {8, 0x03740105},
                                      {12, 0x0b86025f}, {16, 0x1b280449}, {20, 0x34da06c3},
                                      {24, 0x5b1c09cd}, {28, 0x906e0d67}, {32, 0xd7501191}};
const std::vector<Sum> read_sums = {
    {0, 0x00000001},    {1, 0x00050005},    {2, 0x001a0012},    {3, 0x004b0028},
    {4, 0x00a40047},    {5, 0x0131006f},    {63, 0x7e3d1b91},   {64, 0xb2fe1d21},
    {65, 0xea181eba},   {1023, 0x76f1fdf7}, {1024, 0x032efe10}, {1025, 0x837efe32},
    {1435, 0x1328cde3}, {1436, 0xe221cfad}, {2047, 0x025bfc06}, {2048, 0xa2b6fc2e},
    {2049, 0x2b51fc5f}, {4096, 0x244ff86a}, {9999, 0xae057212}, {65535, 0x76c8873b}};

enum Connections { send, write, read, send_solicited, send_inline, send_invalidate };

class Sizes : public testing::Test {
 protected:
  const std::vector<Flow> flows = load_flows("siw_sizes");

  void check_sends(std::size_t index, std::span<const Sum> sums, bool solicited) {
    SCOPED_TRACE(index);
    Replay server(flows.at(index), Side::responder);
    server.run();
    server.check_sent();
    ASSERT_EQ(server.host.receives.size(), sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      EXPECT_EQ(server.host.receives[i].status, Status::success);
      EXPECT_EQ(server.host.receives[i].solicited, solicited);
      EXPECT_EQ(server.host.receives[i].length_bytes, sums[i].length);
      EXPECT_EQ(adler(server.received(i)), sums[i].adler) << sums[i].length;
    }
    check_client(index, sums.size());
  }
  void check_client(std::size_t index, std::size_t requests) {
    Replay client(flows.at(index), Side::initiator);
    client.run();
    client.check_sent();
    EXPECT_EQ(statuses(client.host), std::vector(requests, Status::success));
  }
};

TEST_F(Sizes, Send) {
  check_sends(send, sent_sums, false);
  check_sends(send_solicited, std::span(sent_sums).first(18), true);
  check_sends(send_inline, inline_sums, false);
}

TEST_F(Sizes, SendWithInvalidate) {
  const auto sent = stream_of(flows.at(send_invalidate), Side::initiator);
  const auto stag = wire::UntaggedView::check(sent.fpdus.at(0).ulpdu.bytes)->invalidate_stag();
  Replay server(flows.at(send_invalidate), Side::responder);
  server.add_memory(stag, 0x1000, Content(10));
  server.run();
  ASSERT_EQ(server.host.receives.size(), 1U);
  EXPECT_EQ(adler(server.received(0)), 0x6078346bU);
  EXPECT_TRUE(server.host.receives[0].has_invalidated);
  EXPECT_EQ(server.host.invalidated, std::vector{stag});
  check_client(send_invalidate, 1);
}

// The server's buffer before any write. The reads show its pattern, and the checksum that the
// program printed shows its size.
Content fresh_target() {
  Content bytes(69'632);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(3 * i + 1);
  EXPECT_EQ(adler(bytes), 0xd4617feaU);
  return bytes;
}

TEST_F(Sizes, Write) {
  const auto sent = stream_of(flows.at(write), Side::initiator);
  const auto first = wire::TaggedView::check(sent.fpdus.at(1).ulpdu.bytes);
  Replay server(flows.at(write), Side::responder);
  server.add_memory(first->stag(), 0x55d1fd519000, fresh_target());
  server.run();
  server.check_sent();
  EXPECT_EQ(first->stag(), 0x37fbb300U);
  EXPECT_EQ(adler(server.region(first->stag()).copy()), 0x69f285e3U);
  EXPECT_TRUE(server.host.receives.empty());
  check_client(write, sent_sums.size());
}

TEST_F(Sizes, Read) {
  Replay server(flows.at(read), Side::responder);
  server.add_memory(0xec047a00, 0x55d1fd52b000, fresh_target());
  server.run();
  server.check_sent();

  Replay client(flows.at(read), Side::initiator);
  std::vector<Sum> sums;
  client.run([&] {
    for (; sums.size() < client.host.sends.size();) {
      const auto& sink = client.sinks().at(sums.size());
      Content content;
      if (sink.length_bytes > 0) {
        Region& region = client.region(sink.lkey);
        content = region.copy(sink.address - region.address(), sink.length_bytes);
      }
      sums.push_back({sink.length_bytes, adler(content)});
    }
  });
  client.check_sent();
  EXPECT_EQ(statuses(client.host), std::vector(read_sums.size(), Status::success));
  ASSERT_EQ(sums.size(), read_sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(sums[i].length, read_sums[i].length);
    EXPECT_EQ(sums[i].adler, read_sums[i].adler) << sums[i].length;
  }
}

// --- Errors --------------------------------------------------------------------------------------

// siw's checks are not a reference (it reads without the right to), but its framing is: with rights
// to all memory everything that it sent is accepted.
TEST(Errors, FramesAreUnderstoodByTheResponder) {
  for (const auto& flow : load_flows("siw_errors")) {
    Replay server(flow, Side::responder, {.without_terminates = true});
    server.run();
    EXPECT_FALSE(server.connection().ended()) << describe(server.connection().terminate().code);
    EXPECT_FALSE(server.connection().mid_fpdu());
    for (const auto& completion : server.host.receives) {
      EXPECT_EQ(completion.status, Status::success);
      EXPECT_EQ(completion.length_bytes, 3000U);
    }
  }
}

// The initiator finds the request that each of siw's Terminates means.
TEST(Errors, TerminatesOfSiwFindTheirRequest) {
  const auto flows = load_flows("siw_errors");
  const std::vector<std::vector<Status>> expected = {
      {Status::remote_access},             // write, wrong rkey
      {Status::remote_access},             // read, wrong rkey
      {Status::remote_access},             // write, out of bounds
      {Status::remote_access},             // read, out of bounds
      {Status::remote_access},             // write, missing right
      {Status::success, Status::success},  // read, missing right: siw does not mind
      {Status::rnr_retry_exceeded},        // too long for the receive: siw says that there is none
      {Status::rnr_retry_exceeded},        // no receive posted
      {},
  };
  ASSERT_EQ(flows.size(), expected.size());
  for (std::size_t i = 0; i < flows.size(); ++i) {
    SCOPED_TRACE(i);
    Replay client(flows[i], Side::initiator, {.acknowledge = true});
    client.run();
    EXPECT_EQ(statuses(client.host), expected[i]) << describe(client.connection().terminate().code);
  }
}

}  // namespace
}  // namespace weft::test
