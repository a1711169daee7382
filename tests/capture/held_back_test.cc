// What an exchange waited for before it could begin, made packet by packet: a full queue of NVMe,
// credits of SMB 2 and of SMB Direct, and slots of NFS sessions.
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "capture/findings/allowance.h"
#include "capture/made_roce.h"
#include "capture/made_rpcs.h"
#include "capture/report/exchange_times.h"
#include "capture/rpc_builder.h"
#include "weft/capture/rpc_tracker.hpp"
#include "weft/capture/storage_tracker.hpp"

namespace weft::capture::test {
namespace {

constexpr std::int64_t ms = 1'000'000;
constexpr Side host = Side::a;
constexpr Side target = Side::b;

// --- The account ---------------------------------------------------------------------------------

TEST(Allowance, AWaitIsTheTimeWithTooLittleLeft) {
  Allowance left;
  left.set({1, 0}, 2);
  left.set({2, 10}, 0);
  left.set({3, 50}, 1);
  const LimitWait wait = left.wait_before({4, 60}, 1);
  EXPECT_EQ(wait.ns(), 40);
  EXPECT_EQ(wait.frame, 3U);
  EXPECT_EQ(left.wait_before({5, 61}, 1).ns(), 0);  // one message only
}

TEST(Allowance, ALargeMessageWaitsForMore) {
  Allowance left;
  left.set({1, 0}, 9);
  left.set({2, 10}, 3);
  left.set({3, 40}, 8);
  left.set({4, 45}, 7);
  EXPECT_EQ(left.wait_before({5, 50}, 1).ns(), 0);
  EXPECT_EQ(left.wait_before({5, 50}, 5).ns(), 30);
}

TEST(Allowance, ASenderThatWasIdleDidNotWait) {
  Allowance left;
  left.set({1, 0}, 0);
  left.set({2, 40}, 1);
  EXPECT_EQ(left.wait_before({3, 81}, 1).ns(), 0);
  left.set({4, 90}, 0);
  EXPECT_EQ(left.wait_before({5, 95}, 1).ns(), 0);  // there is nothing left now
}

TEST(Allowance, WaitsAreJoined) {
  EXPECT_EQ(joined_ns({0, 10, 1}, {5, 20, 2}), 20);
  EXPECT_EQ(joined_ns({0, 10, 1}, {15, 20, 2}), 15);
  EXPECT_EQ(joined_ns({0, 10, 1}, {}), 10);
}

// --- Conversations -------------------------------------------------------------------------------

// Packets at times that the test sets, of one connection or several.
class Timed {
 public:
  explicit Timed(std::uint32_t connections = 1) {
    for (std::uint32_t one = 0; one < connections; ++one) {
      talks_.push_back(std::make_unique<RoceTalk>(
          capture_, RoceOptions{.mtu_bytes = 4096, .qp_a = 0x11 + one, .qp_b = 0x11 + one}));
      talks_.back()->connect();
    }
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

  void at(std::int64_t time_ns) { now_ns_ = time_ns; }
  void send(Side side, const Content& message, std::size_t connection = 0) {
    const std::size_t before = capture_.size();
    talks_[connection]->send(side, message);
    for (std::size_t one = before; one < capture_.size(); ++one) {
      capture_[one].time_ns = first_ns + now_ns_;
    }
  }
  [[nodiscard]] const MadeCapture& capture() const { return capture_; }

 private:
  static constexpr std::int64_t first_ns = 1'800'000'000'000'000'000;

  MadeCapture capture_;
  std::vector<std::unique_ptr<RoceTalk>> talks_;
  std::int64_t now_ns_ = 0;
};

struct Followed final : StorageSink, RpcSink {
  Analysis analysis;
  WaitTimes waits{analysis.connections()};
  StorageTracker storage{analysis.connections(), *this};
  RpcTracker tracker{*this};
  ExchangeTimes times{analysis.connections(), waits, 16};
  std::vector<StorageCommand> commands;
  std::vector<Rpc> rpcs;

  explicit Followed(const MadeCapture& capture) {
    analysis.add_sink(waits);
    analysis.add_sink(storage);
    analysis.add_sink(tracker);
    feed(analysis, capture);
    storage.finish();
    tracker.finish();
  }
  void on_command(const StorageCommand& command) override {
    commands.push_back(command);
    times.add(command);
  }
  void on_rpc(const Rpc& rpc) override {
    rpcs.push_back(rpc);
    times.add(rpc);
  }
  void on_finding(const Finding& /*finding*/) override {}

  [[nodiscard]] const StorageCommand& command(std::uint64_t id) const {
    for (const StorageCommand& one : commands) {
      if (one.id == id) return one;
    }
    ADD_FAILURE() << "no command " << id;
    return commands.front();
  }
  [[nodiscard]] const Rpc& rpc(std::uint32_t xid) const {
    for (const Rpc& one : rpcs) {
      if (one.xid == xid) return one;
    }
    ADD_FAILURE() << "no call " << xid;
    return rpcs.front();
  }
  [[nodiscard]] SlowExchange slow(std::int64_t latency_ns) const {
    for (const SlowExchange& one : times.slowest()) {
      if (one.latency_ns == latency_ns) return one;
    }
    ADD_FAILURE() << "no exchange of " << latency_ns << " ns";
    return {};
  }
};

Content le(std::initializer_list<std::pair<std::size_t, std::uint64_t>> fields) {
  Content out;
  for (const auto& [size, value] : fields) {
    for (std::size_t i = 0; i < size; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  return out;
}

// --- NVMe ----------------------------------------------------------------------------------------

Content nvme_command(std::uint8_t opcode, std::uint16_t id) {
  Content out(64);
  out[0] = std::byte{opcode};
  out[1] = std::byte{0x40};
  store_le(out.data() + 2, id);
  out[39] = std::byte{0x40};
  return out;
}

Content nvme_connect(std::uint16_t queue, std::uint16_t entries) {
  Content out = nvme_command(0x7F, 1);
  out[4] = std::byte{1};
  store_le(out.data() + 42, queue);
  store_le(out.data() + 44, static_cast<std::uint16_t>(entries - 1));
  return out;
}

Content nvme_completion(std::uint16_t id) {
  Content out(16);
  store_le(out.data() + 12, id);
  return out;
}

// A queue of 8 entries and `first` commands at once; one more follows the first answer at once.
MadeCapture full_queue(std::uint16_t queue, std::uint16_t first) {
  Timed made;
  made.at(0);
  made.send(host, nvme_connect(queue, 8));
  made.send(target, nvme_completion(1));
  for (std::uint16_t one = 0; one < first; ++one) {
    made.at(ms + one);
    made.send(host, nvme_command(2, static_cast<std::uint16_t>(10 + one)));
  }
  made.at(9 * ms);
  made.send(target, nvme_completion(10));
  made.at(9 * ms + 1'000);
  made.send(host, nvme_command(2, 50));
  made.at(11 * ms + 1'000);
  made.send(target, nvme_completion(50));
  return made.capture();
}

TEST(HeldBack, ACommandWaitsForRoomInTheQueue) {
  const Followed seen(full_queue(1, 7));
  EXPECT_EQ(seen.command(16).timing.queue_ns, 0);
  EXPECT_EQ(seen.command(50).timing.queue_ns, 8 * ms - 6);
  const SlowExchange slow = seen.slow(2 * ms);
  EXPECT_EQ(slow.parts.queue_ns, 8 * ms - 6);
  EXPECT_EQ(slow.parts.held_ns(), 8 * ms - 6);
  EXPECT_NE(slow.story.find("waited up to 8.00 ms because the queue was full"), std::string::npos)
      << slow.story;
}

// Linux's host keeps one entry for Connect.
TEST(HeldBack, TheLastEntryMayBeKept) {
  EXPECT_EQ(Followed(full_queue(1, 6)).command(50).timing.queue_ns, 8 * ms - 5);
  EXPECT_EQ(Followed(full_queue(1, 5)).command(50).timing.queue_ns, 0);
}

TEST(HeldBack, TheAdminQueueIsNotFollowed) {
  EXPECT_EQ(Followed(full_queue(0, 7)).command(50).timing.queue_ns, 0);
}

TEST(HeldBack, NothingIsKnownOfAQueueWithoutItsConnectCommand) {
  MadeCapture capture = full_queue(1, 7);
  const auto is_connect = [](const MadePacket& packet) {
    return packet.bytes.size() > 100 && packet.bytes[54 + 0] == std::byte{0x7F};
  };
  const std::size_t before = capture.size();
  std::erase_if(capture, is_connect);
  ASSERT_EQ(capture.size() + 1, before);
  for (const StorageCommand& one : Followed(capture).commands) EXPECT_EQ(one.timing.queue_ns, 0);
}

// --- SMB -----------------------------------------------------------------------------------------

struct Smb2 {
  std::uint16_t command = 8;
  std::uint64_t id = 0;
  bool response = false;
  std::uint16_t charge = 1;
  std::uint16_t granted = 0;
};

Content smb2(const Smb2& one) {
  Content made = le({{4, 0x424D53FE},
                     {2, 64},
                     {2, one.charge},
                     {4, 0},
                     {2, one.command},
                     {2, one.granted},
                     {4, one.response ? 1U : 0U},
                     {4, 0},
                     {8, one.id}});
  made.resize(64);
  return made;
}

// One transfer with the whole of the rest of a message, or a piece of it.
Content transfer(const Content& data, std::uint16_t granted, std::uint32_t remaining = 0) {
  Content made = le(
      {{2, 10}, {2, granted}, {2, 0}, {2, 0}, {4, remaining}, {4, 24}, {4, data.size()}, {4, 0}});
  made.insert(made.end(), data.begin(), data.end());
  return made;
}

Content grant(std::uint16_t granted) {
  return le({{2, 10}, {2, granted}, {2, 0}, {2, 0}, {4, 0}, {4, 0}, {4, 0}});
}

// The negotiation of SMB Direct grants `direct` credits to the host, and that of SMB 2 `credits`.
// The host grants the target the same number.
void negotiate(Timed& made, std::uint16_t direct, std::uint16_t credits) {
  made.at(0);
  made.send(
      host,
      le({{2, 0x0100}, {2, 0x0100}, {2, 0}, {2, direct}, {4, 1364}, {4, 8192}, {4, 1'048'576}}));
  made.send(target, le({{2, 0x0100},
                        {2, 0x0100},
                        {2, 0x0100},
                        {2, 0},
                        {2, direct},
                        {2, direct},
                        {4, 0},
                        {4, 8'388'608},
                        {4, 1364},
                        {4, 8192},
                        {4, 1'048'576}}));
  made.send(host, transfer(smb2({.command = 0, .id = 0}), direct));
  made.send(target,
            transfer(smb2({.command = 0, .id = 0, .response = true, .granted = credits}), 1));
}

TEST(HeldBack, ALargeReadWaitsForSmbCredits) {
  Timed made;
  negotiate(made, 200, 20);
  made.at(ms);
  made.send(host, transfer(smb2({.id = 1, .charge = 16}), 1));
  made.at(2 * ms);
  made.send(host, transfer(smb2({.command = 16, .id = 17}), 1));  // one credit: enough is left
  made.at(6 * ms);
  made.send(target, transfer(smb2({.id = 1, .response = true, .granted = 16}), 1));
  made.at(6 * ms + 1'000);
  made.send(host, transfer(smb2({.id = 18, .charge = 16}), 1));
  made.at(7 * ms + 1'000);
  made.send(target, transfer(smb2({.id = 18, .response = true, .granted = 16}), 1));
  const Followed seen(made.capture());
  EXPECT_EQ(seen.command(17).timing.credits_ns, 0);
  EXPECT_EQ(seen.command(18).timing.credits_ns, 5 * ms);
  EXPECT_EQ(seen.slow(ms).parts.credits_ns, 5 * ms);
}

// A client that sends one after the other waits for answers, whatever credits it has.
TEST(HeldBack, OneCommandAtATimeIsNoWait) {
  Timed made;
  negotiate(made, 200, 1);
  for (std::uint64_t id = 1; id <= 4; ++id) {
    made.at(static_cast<std::int64_t>(10 * id) * ms);
    made.send(host, transfer(smb2({.command = 1, .id = id}), 1));
    made.at(static_cast<std::int64_t>(10 * id + 9) * ms);
    made.send(target, transfer(smb2({.command = 1, .id = id, .response = true, .granted = 1}), 1));
  }
  const Followed seen(made.capture());
  ASSERT_EQ(seen.commands.size(), 5U);
  for (const StorageCommand& one : seen.commands) EXPECT_EQ(one.timing.credits_ns, 0) << one.id;
}

TEST(HeldBack, AMessageWaitsForCreditsOfSmbDirect) {
  Timed made;
  negotiate(made, 4, 100);  // the host has used one, and got one
  for (std::uint64_t id = 1; id <= 3; ++id) {
    made.at(static_cast<std::int64_t>(id) * ms);
    made.send(host, transfer(smb2({.id = id}), 0));
  }
  made.at(9 * ms);
  made.send(target, grant(2));
  made.at(9 * ms + 1'000);
  made.send(host, transfer(smb2({.id = 4}), 0));
  made.at(10 * ms + 1'000);
  made.send(target, transfer(smb2({.id = 4, .response = true, .granted = 1}), 2));
  const Followed seen(made.capture());
  EXPECT_EQ(seen.command(3).timing.credits_ns, 0);
  // The last credit is kept for a transfer that grants some.
  EXPECT_EQ(seen.command(4).timing.credits_ns, 6 * ms);
}

// The target answers in two pieces, of which the first one has to wait for a receive of the host.
TEST(HeldBack, AnAnswerThatWaitsForCreditsIsNotTheServersTime) {
  Timed made;
  negotiate(made, 3, 100);  // the target has two left
  made.at(ms);
  made.send(target, grant(1));
  made.at(2 * ms);
  made.send(host, transfer(smb2({.id = 1}), 0));
  made.at(8 * ms);
  made.send(host, grant(2));
  made.at(8 * ms + 1'000);
  made.send(target, transfer(smb2({.id = 1, .response = true, .granted = 1}), 0));
  const Followed seen(made.capture());
  // It had one credit since 1 ms, and the call came at 2 ms.
  EXPECT_EQ(seen.command(1).timing.receives_ns, 6 * ms);
  const SlowExchange slow = seen.slow(6 * ms + 1'000);
  EXPECT_EQ(slow.parts.receives_ns, 6 * ms);
  EXPECT_EQ(slow.parts.server_ns, 1'000);
  EXPECT_NE(slow.story.find("for a receiver that was not ready, until frame"), std::string::npos)
      << slow.story;
}

// What was encrypted, and what the capture lacks, may have used and granted any credits.
TEST(HeldBack, CreditsAreUnknownAfterWhatCannotBeRead) {
  for (const bool encrypted : {true, false}) {
    Timed made;
    negotiate(made, 200, 16);
    made.at(ms);
    made.send(host, transfer(smb2({.id = 1, .charge = 16}), 1));
    Content hidden = smb2({.id = 1, .response = true, .granted = 1});
    if (encrypted) hidden[0] = std::byte{0xFD};
    made.at(2 * ms);
    made.send(target, transfer(hidden, 1));
    const std::size_t last = made.capture().size();
    made.at(6 * ms);
    made.send(target, transfer(smb2({.id = 1, .response = true, .granted = 16}), 1));
    made.at(6 * ms + 1'000);
    made.send(host, transfer(smb2({.id = 17, .charge = 16}), 1));
    made.send(target, transfer(smb2({.id = 17, .response = true, .granted = 16}), 1));
    MadeCapture capture = made.capture();
    if (!encrypted) capture.erase(capture.begin() + static_cast<std::ptrdiff_t>(last) - 2);
    EXPECT_EQ(Followed(capture).command(17).timing.credits_ns, 0) << encrypted;
  }
}

// --- NFS -----------------------------------------------------------------------------------------

Content sequence_call(std::uint32_t xid, std::uint8_t session, std::uint32_t slot) {
  const Content id(16, std::byte{session});
  const Xdr arguments =
      Xdr().text("").u32(1).u32(2).u32(53).fixed(id).u32(xid).u32(slot).u32(1).u32(0).u32(24);
  return rdma_message({.xid = xid}, rpc_call(xid, nfs_program, 4, 1, arguments));
}

// With `slots` slots that the server wants to be used.
Content sequence_reply(std::uint32_t xid, std::uint8_t session, std::uint32_t slot,
                       std::uint32_t slots) {
  const Content id(16, std::byte{session});
  const Xdr results = Xdr()
                          .u32(0)
                          .text("")
                          .u32(2)
                          .u32(53)
                          .u32(0)
                          .fixed(id)
                          .u32(xid)
                          .u32(slot)
                          .u32(63)
                          .u32(slots - 1)
                          .u32(0)
                          .u32(24)
                          .u32(0);
  return rdma_message({.xid = xid}, rpc_reply(xid, results));
}

MadeCapture two_slots(std::uint32_t slots) {
  Timed made;
  made.at(0);
  made.send(host, sequence_call(1, 7, 0));
  made.send(target, sequence_reply(1, 7, 0, slots));
  made.at(ms);
  made.send(host, sequence_call(2, 7, 0));
  made.at(2 * ms);
  made.send(host, sequence_call(3, 7, 1));
  made.at(9 * ms);
  made.send(target, sequence_reply(2, 7, 0, slots));
  made.at(9 * ms + 1'000);
  made.send(host, sequence_call(4, 7, 0));
  made.at(10 * ms + 1'000);
  made.send(target, sequence_reply(4, 7, 0, slots));
  made.at(14 * ms);
  made.send(target, sequence_reply(3, 7, 1, slots));
  return made.capture();
}

TEST(HeldBack, ACallWaitsForASlotOfItsSession) {
  const Followed seen(two_slots(2));
  EXPECT_EQ(seen.rpc(3).slots_ns, 0);
  EXPECT_EQ(seen.rpc(4).slots_ns, 7 * ms);
  EXPECT_EQ(seen.rpc(4).credits_ns, 0);
  const SlowExchange slow = seen.slow(ms);
  EXPECT_EQ(slow.parts.slots_ns, 7 * ms);
  EXPECT_NE(slow.story.find("waited up to 7.00 ms for a free slot of the session"),
            std::string::npos)
      << slow.story;
  EXPECT_EQ(Followed(two_slots(3)).rpc(4).slots_ns, 0);
}

// Slots belong to the session, whatever connection a call comes on.
TEST(HeldBack, ASessionMayHaveTwoConnections) {
  Timed made(2);
  made.at(0);
  made.send(host, sequence_call(1, 7, 0));
  made.send(target, sequence_reply(1, 7, 0, 2));
  made.at(ms);
  made.send(host, sequence_call(2, 7, 0));
  made.at(2 * ms);
  made.send(host, sequence_call(3, 7, 1), 1);
  made.at(9 * ms);
  made.send(target, sequence_reply(2, 7, 0, 2));
  made.at(9 * ms + 1'000);
  made.send(host, sequence_call(4, 7, 0), 1);
  made.at(10 * ms);
  made.send(target, sequence_reply(4, 7, 0, 2), 1);
  made.send(target, sequence_reply(3, 7, 1, 2), 1);
  const Followed seen(made.capture());
  ASSERT_EQ(seen.analysis.connections().size(), 2U);
  EXPECT_EQ(seen.rpc(4).slots_ns, 7 * ms);
}

TEST(HeldBack, TimeThatCreditsExplainIsNotCountedTwice) {
  Timed made;
  made.at(0);
  made.send(host, sequence_call(1, 7, 0));
  const auto reply = [](std::uint32_t xid, std::uint32_t slot) {
    Content message = sequence_reply(xid, 7, slot, 2);
    store_be(message.data() + 8, std::uint32_t{2});  // two credits
    return message;
  };
  made.send(target, reply(1, 0));
  made.at(ms);
  made.send(host, sequence_call(2, 7, 0));
  made.at(2 * ms);
  made.send(host, sequence_call(3, 7, 1));
  made.at(9 * ms);
  made.send(target, reply(2, 0));
  made.at(9 * ms + 1'000);
  made.send(host, sequence_call(4, 7, 0));
  made.at(10 * ms);
  made.send(target, reply(4, 0));
  made.send(target, reply(3, 1));
  const Followed seen(made.capture());
  EXPECT_EQ(seen.rpc(4).credits_ns, 7 * ms);
  EXPECT_EQ(seen.rpc(4).slots_ns, 0);
}

}  // namespace
}  // namespace weft::capture::test
