// SMB Direct and NVMe over RDMA: recognised by what their messages must look like, and counted.
#include "capture/findings/upper_protocols.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "base/bytes.h"
#include "capture/made_roce.h"

namespace weft::capture::test {
namespace {

Content le(std::initializer_list<std::pair<std::size_t, std::uint64_t>> fields) {
  Content out;
  for (const auto& [size, value] : fields) {
    for (std::size_t i = 0; i < size; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  return out;
}

// Through a whole analysis, on either transport.
struct Seen {
  Analysis analysis;
  UpperProtocols upper;

  explicit Seen(const MadeCapture& capture) {
    analysis.add_sink(upper);
    feed(analysis, capture);
  }
};

// --- SMB Direct ----------------------------------------------------------------------------------

Content negotiate_request() {
  return le({{2, 0x0100}, {2, 0x0100}, {2, 0}, {2, 255}, {4, 1364}, {4, 8192}, {4, 1'048'576}});
}

Content negotiate_response() {
  return le({{2, 0x0100},
             {2, 0x0100},
             {2, 0x0100},
             {2, 0},
             {2, 255},
             {2, 255},
             {4, 0},
             {4, 8'388'608},
             {4, 1364},
             {4, 8192},
             {4, 1'048'576}});
}

Content transfer(std::uint16_t command) {
  Content message = le({{2, 255},
                        {2, 10},
                        {2, 0},
                        {2, 0},
                        {4, 0},
                        {4, 24},
                        {4, 80},
                        {4, 0},
                        {4, 0x424D53FE},
                        {2, 64},
                        {2, 0},
                        {4, 0},
                        {2, command}});
  message.resize(24 + 80);
  return message;
}

Content empty_transfer() {
  return le({{2, 255}, {2, 10}, {2, 0}, {2, 0}, {4, 0}, {4, 0}, {4, 0}});
}

TEST(SmbDirect, MessagesAreCountedByType) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  talk.connect();
  talk.send(Side::a, negotiate_request());
  talk.send(Side::b, negotiate_response());
  talk.send(Side::a, transfer(8));
  talk.send(Side::b, transfer(8));
  talk.send(Side::a, transfer(5));
  talk.send(Side::a, empty_transfer());
  const Seen seen(capture);
  const UpperTraffic* found = seen.upper.of(0);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->protocol, UpperProtocol::smb_direct);
  EXPECT_EQ(found->messages, (MessageCounts{{"negotiate request", 1},
                                            {"negotiate response", 1},
                                            {"transfer", 3},
                                            {"transfer without data", 1},
                                            {"SMB2 READ", 2},
                                            {"SMB2 CREATE", 1}}));
}

TEST(SmbDirect, IsRecognisedInMidStream) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  talk.send(Side::a, empty_transfer());
  talk.send(Side::b, transfer(9));
  const Seen seen(capture);
  ASSERT_NE(seen.upper.of(0), nullptr);
  EXPECT_EQ(seen.upper.of(0)->messages, (MessageCounts{{"SMB2 WRITE", 1}, {"transfer", 1}}));
}

// --- NVMe over RDMA ------------------------------------------------------------------------------

constexpr std::uint8_t keyed = 0x40;

Content command(std::uint8_t opcode, std::uint16_t number, std::uint8_t fabrics_type = 0,
                std::uint16_t queue = 0) {
  Content out(64);
  out[0] = std::byte{opcode};
  out[1] = std::byte{0x40};
  store_le(out.data() + 2, number);
  out[4] = std::byte{fabrics_type};
  out[39] = std::byte{keyed};
  store_le(out.data() + 42, queue);
  return out;
}

Content completion(std::uint16_t number, std::uint16_t status = 0) {
  Content out(16);
  store_le(out.data() + 12, number);
  store_le(out.data() + 14, static_cast<std::uint16_t>(status << 1));
  return out;
}

void ask(RoceTalk& talk, const Content& asked, std::uint16_t status = 0) {
  talk.send(Side::a, asked);
  talk.send(Side::b, completion(load_le<std::uint16_t>(asked.data() + 2), status));
}

TEST(Nvme, AdminAndInputOutputQueuesHaveTheirCommands) {
  MadeCapture capture;
  RoceTalk admin(capture, {.mtu_bytes = 1024});
  admin.connect();
  ask(admin, command(0x7F, 1, 0x01, 0));
  ask(admin, command(0x7F, 2, 0x04));
  ask(admin, command(0x06, 3));
  ask(admin, command(0x02, 4), 0x0B);
  RoceTalk io(capture, {.mtu_bytes = 1024, .qp_a = 0x12, .qp_b = 0x12});
  io.connect();
  ask(io, command(0x7F, 1, 0x01, 3));
  ask(io, command(0x02, 2));
  ask(io, command(0x01, 3));
  ask(io, command(0x01, 4));
  const Seen seen(capture);
  ASSERT_NE(seen.upper.of(0), nullptr);
  EXPECT_EQ(seen.upper.of(0)->protocol, UpperProtocol::nvme);
  EXPECT_EQ(seen.upper.of(0)->messages, (MessageCounts{{"connect", 1},
                                                       {"property get", 1},
                                                       {"identify", 1},
                                                       {"get log page", 1},
                                                       {"completion", 4},
                                                       {"completion with an error", 1}}));
  ASSERT_NE(seen.upper.of(1), nullptr);
  EXPECT_EQ(seen.upper.of(1)->messages,
            (MessageCounts{{"connect", 1}, {"read", 1}, {"write", 2}, {"completion", 4}}));
}

TEST(Nvme, IsRecognisedInMidStreamByCommandsAndTheirCompletions) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  for (std::uint16_t number = 10; number < 16; ++number) ask(talk, command(2, number));
  const Seen seen(capture);
  ASSERT_NE(seen.upper.of(0), nullptr);
  // From the fourth completion on; whether it reads or asks for a log page cannot be known.
  EXPECT_EQ(seen.upper.of(0)->messages, (MessageCounts{{"command", 2}, {"completion", 3}}));
}

TEST(UpperProtocolsTest, OtherSendsAreNeither) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  for (std::size_t size = 0; size < 100; ++size) {
    talk.send(Side::a, size);
    talk.send(Side::b, 16);
  }
  EXPECT_EQ(Seen(capture).upper.of(0), nullptr);
}

}  // namespace
}  // namespace weft::capture::test
