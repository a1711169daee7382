// Atomic writes: 8 bytes at once, as RFC 7306 §5.1's swap that compares nothing.
#include <gtest/gtest.h>

#include "support/pair.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Operation;
using iwarp::Requester;
using iwarp::Status;
using wire::AtomicOpcode;
using wire::AtomicRequest;

constexpr std::uint64_t ones = ~std::uint64_t{0};
constexpr std::uint64_t before = 0x1111;
constexpr std::uint64_t after = 0x0102030405060708;

std::uint64_t word(const Region& region) {
  std::uint64_t value;
  std::memcpy(&value, region.copy(0, 8).data(), 8);
  return value;
}

void set_word(Region& region, std::uint64_t value) {
  region.put(0, std::as_bytes(std::span(&value, 1)));
}

AtomicRequest swap_of(const Region& region) {
  return {.opcode = AtomicOpcode::compare_swap,
          .request_id = 3,
          .stag = region.rkey(),
          .tagged_offset = region.address(),
          .add_or_swap = after,
          .add_or_swap_mask = ones,
          .compare_mask = 0};
}

TEST(AtomicWrite, PutsEightBytesAndLeavesTheSourceAlone) {
  Pair pair;
  Region& target = pair.b.host.add(8);
  Region& source = pair.a.host.add(8);
  set_word(target, before);
  set_word(source, after);
  pair.a.post({.wr_id = 9,
               .operation = Operation::atomic_write,
               .remote_address = target.address(),
               .rkey = target.rkey()},
              {source.slice()});
  pair.drive();
  EXPECT_EQ(pair.a.send_statuses(), std::vector{Status::success});
  EXPECT_EQ(pair.a.host.sends.at(0).length_bytes, 8U);
  EXPECT_EQ(word(target), after);
  EXPECT_EQ(word(source), after);
}

TEST(AtomicWrite, InlineDataMayBeGoneByThen) {
  Pair pair;
  Region& target = pair.b.host.add(8);
  {
    std::uint64_t value = after;
    pair.a.post({.operation = Operation::atomic_write,
                 .inline_data = true,
                 .remote_address = target.address(),
                 .rkey = target.rkey()},
                {{reinterpret_cast<std::uintptr_t>(&value), 8, 0}});
    value = 0;
  }
  pair.drive();
  EXPECT_EQ(word(target), after);
}

TEST(AtomicWrite, ComparesNothing) {
  ScriptedPeer peer(roomy(true));
  Region& source = peer.host.add(8);
  set_word(source, after);
  peer.post({.operation = Operation::atomic_write, .remote_address = 0x2000, .rkey = 0xCD},
            {source.slice()});
  peer.expect(atomic_request(1, {.opcode = AtomicOpcode::compare_swap,
                                 .request_id = 1,
                                 .stag = 0xCD,
                                 .tagged_offset = 0x2000,
                                 .add_or_swap = after,
                                 .add_or_swap_mask = ones,
                                 .compare = 0,
                                 .compare_mask = 0}));
  peer.send(atomic_response(1, 1, before));
  EXPECT_EQ(peer.statuses(), std::vector{Status::success});
  EXPECT_EQ(word(source), after) << "what was there before is nobody's";
}

TEST(AtomicWrite, ShowsWhatWasThereToWhoMayDoAtomics) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(8);
  set_word(memory, before);
  peer.send(atomic_request(1, swap_of(memory)));
  peer.expect(atomic_response(1, 3, before));
  EXPECT_EQ(word(memory), after);
}

TEST(AtomicWrite, ShowsNothingToWhoMayOnlyWrite) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(8, {.remote_read = false, .remote_atomic = false});
  set_word(memory, before);
  peer.send(atomic_request(1, swap_of(memory)));
  peer.expect(atomic_response(1, 3, 0));
  EXPECT_EQ(word(memory), after);
}

TEST(AtomicWrite, IsRefusedToWhoMayNotWrite) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(8, {.remote_write = false, .remote_atomic = false});
  set_word(memory, before);
  const auto culprit = atomic_request(1, swap_of(memory));
  peer.send(culprit);
  peer.expect_terminate(terminate(wire::terminate::rdma_access, culprit));
  EXPECT_EQ(word(memory), before);
}

TEST(AtomicWrite, TakesExactlyEightBytes) {
  Pair pair;
  Region& source = pair.a.host.add(16);
  const iwarp::WorkRequest write{.operation = Operation::atomic_write};
  EXPECT_EQ(pair.a.try_post(write, {source.slice(0, 4)}), Requester::Posted::invalid);
  EXPECT_EQ(pair.a.try_post(write, {source.slice(0, 16)}), Requester::Posted::invalid);
  EXPECT_EQ(pair.a.try_post(write, {source.slice(0, 8)}), Requester::Posted::ok);
}

}  // namespace
}  // namespace weft::test
