// Transfers between two queue pairs: the data, and the time of the completions.
#include <algorithm>
#include <cstring>
#include <thread>

#include "device/pair_fixture.h"

namespace weft::device {
namespace {

TEST(Transfer, SendArrivesInPostedReceive) {
  Pair pair;
  auto source = pair.a.buffer(4096);
  auto sink = pair.b.buffer(4096);
  source->fill(1);
  ASSERT_EQ(pair.b.post_receive(7, {sink->sge(0, 4096)}), 0);
  ASSERT_EQ(pair.a.send(5, {source->sge(0, 4096)}), 0);

  const ibv_wc received = pair.b.await();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 7U);
  EXPECT_EQ(received.byte_len, 4096U);
  EXPECT_TRUE(sink->holds(1, 0, 4096));
  const ibv_wc sent = pair.a.await();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.wr_id, 5U);
}

// A completed write has been placed, even if the target's application makes no call.
TEST(Transfer, CompletedWriteIsPlacedWithoutACallOfTheTarget) {
  Pair pair;
  constexpr std::size_t size = 3'000'000;
  auto source = pair.a.buffer(size);
  auto sink = pair.b.buffer(size);
  source->fill(9);
  ASSERT_EQ(pair.a.write(1, {source->sge(0, size)}, sink->address(), sink->rkey()), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(sink->holds(9, 0, size));
}

TEST(Transfer, ReadFetchesEverySize) {
  Pair pair;
  constexpr std::size_t size = 1 << 20;
  auto local = pair.a.buffer(size);
  auto remote = pair.b.buffer(size);
  remote->fill(3);
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{4095},
                                   std::size_t{64754}, std::size_t{64755}, size}) {
    std::memset(local->bytes().data(), 0, size);
    ASSERT_EQ(pair.a.read(length, {local->sge(0, length)}, remote->address(), remote->rkey()), 0);
    const ibv_wc done = pair.a.await();
    EXPECT_EQ(done.status, IBV_WC_SUCCESS) << length;
    EXPECT_EQ(done.opcode, IBV_WC_RDMA_READ);
    EXPECT_TRUE(local->holds(3, 0, length)) << length;
  }
}

TEST(Transfer, GathersAndScatters) {
  Pair pair;
  auto source = pair.a.buffer(1000);
  auto sink = pair.b.buffer(1000);
  source->fill(4);
  ASSERT_EQ(pair.b.post_receive(1, {sink->sge(0, 10), sink->sge(10, 500), sink->sge(510, 490)}), 0);
  ASSERT_EQ(pair.a.send(2, {source->sge(0, 333), source->sge(333, 1), source->sge(334, 666)}), 0);
  EXPECT_EQ(pair.b.await().byte_len, 1000U);
  EXPECT_TRUE(sink->holds(4, 0, 1000));
}

// On the carrier within a host the peer finds the pieces of receives in shared memory, in different
// places: the first one, the others, and those of queues with more receives than 64. 8000 bytes are
// written straight to the pieces.
TEST(Transfer, ReceivesOfEachSizeGetTheirOwnPieces) {
  constexpr std::size_t piece = 2000;
  for (const std::uint32_t receives : {1U, 5U, 64U, 65U, 200U}) {
    PairOptions options;
    options.ends.receive_requests = receives;
    Pair pair(options);
    auto source = pair.a.buffer(4 * piece);
    auto sink = pair.b.buffer(std::size_t{receives} * 4 * piece);
    // Twice, so that each place is used again.
    for (int round = 0; round < 2; ++round) {
      for (std::uint32_t i = 0; i < receives; ++i) {
        std::vector<ibv_sge> pieces;
        // From the end of its part to the beginning, so that they are not adjacent.
        for (std::size_t at = i % 4 + 1; at-- > 0;) {
          pieces.push_back(sink->sge((std::size_t{i} * 4 + at) * piece, piece));
        }
        ASSERT_EQ(pair.b.post_receive(i, pieces), 0);
      }
      for (std::uint32_t i = 0; i < receives; ++i) {
        const std::size_t count = i % 4 + 1;
        source->fill(static_cast<std::uint8_t>(i + static_cast<unsigned>(round)));
        ASSERT_EQ(pair.a.send(i, {source->sge(0, count * piece)}), 0);
        ASSERT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
        const ibv_wc received = pair.b.await();
        ASSERT_EQ(received.status, IBV_WC_SUCCESS);
        ASSERT_EQ(received.byte_len, count * piece);
        const auto sent = source->bytes();
        const auto got = sink->bytes().subspan(std::size_t{i} * 4 * piece);
        for (std::size_t k = 0; k < count; ++k) {
          ASSERT_TRUE(std::ranges::equal(sent.subspan(k * piece, piece),
                                         got.subspan((count - 1 - k) * piece, piece)))
              << receives << " receives, number " << i << ", piece " << k;
        }
      }
    }
  }
}

TEST(Transfer, InlineDataMayChangeAfterPosting) {
  Pair pair;
  auto sink = pair.b.buffer(64);
  std::uint64_t value = 42;
  ASSERT_EQ(pair.b.post_receive(1, {sink->sge(0, 64)}), 0);
  ASSERT_EQ(pair.a.send(2, {{reinterpret_cast<std::uint64_t>(&value), 8, 0}},
                        IBV_SEND_SIGNALED | IBV_SEND_INLINE),
            0);
  value = 0;
  EXPECT_EQ(pair.b.await().byte_len, 8U);
  EXPECT_EQ(sink->bytes()[0], 42);
}

TEST(Transfer, AtomicsReturnTheOriginalValue) {
  Pair pair;
  auto local = pair.a.buffer(16);
  auto remote = pair.b.buffer(16);
  auto* word = reinterpret_cast<std::uint64_t*>(remote->bytes().data());
  auto* result = reinterpret_cast<std::uint64_t*>(local->bytes().data());
  *word = 40;
  ibv_send_wr request{};
  request.send_flags = IBV_SEND_SIGNALED;
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.atomic = {remote->address(), 2, 0, remote->rkey()};
  ASSERT_EQ(pair.a.post(request, {local->sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(*result, 40U);
  EXPECT_EQ(*word, 42U);

  request.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  request.wr.atomic = {remote->address(), 42, 7, remote->rkey()};
  ASSERT_EQ(pair.a.post(request, {local->sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.await().opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(*result, 42U);
  EXPECT_EQ(*word, 7U);
}

TEST(Transfer, WriteWithImmediateConsumesAReceive) {
  Pair pair;
  auto source = pair.a.buffer(100);
  auto sink = pair.b.buffer(100);
  source->fill(8);
  ASSERT_EQ(pair.b.post_receive(11, {}), 0);
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = 0x01020304;
  request.wr.rdma = {sink->address(), sink->rkey()};
  ASSERT_EQ(pair.a.post(request, {source->sge(0, 100)}), 0);
  const ibv_wc received = pair.b.await();
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(received.imm_data, 0x01020304U);
  EXPECT_EQ(received.byte_len, 100U);
  EXPECT_TRUE(sink->holds(8, 0, 100));
}

// Every peer of the domain would lose the region (RFC 5042 §6.4.5). Windows of type 2 can be
// invalidated: see Windows.OfTypeTwoAreInvalidatedByThePeer.
TEST(Transfer, SendWithInvalidateCannotWithdrawARegion) {
  Pair pair;
  auto source = pair.a.buffer(8);
  auto sink = pair.b.buffer(8);
  ASSERT_EQ(pair.b.post_receive(1, {sink->sge(0, 8)}), 0);
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_INV;
  request.send_flags = IBV_SEND_SIGNALED;
  request.invalidate_rkey = sink->rkey();
  ASSERT_EQ(pair.a.post(request, {source->sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(pair.b.await().status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_TRUE(Region::of(sink->mr())->remote_valid);
}

TEST(Transfer, LocalInvalidateCannotWithdrawARegion) {
  Pair pair;
  auto buffer = pair.a.buffer(8);
  ibv_send_wr request{};
  request.opcode = IBV_WR_LOCAL_INV;
  request.send_flags = IBV_SEND_SIGNALED;
  request.invalidate_rkey = buffer->rkey();
  ASSERT_EQ(pair.a.post(request, {}), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_TRUE(Region::of(buffer->mr())->remote_valid);
}

// Both sides send large writes to each other and no thread polls: no write may wait for another.
TEST(Transfer, BothDirectionsAtOnceDoNotBlockEachOther) {
  Pair pair;
  constexpr std::size_t size = 8'000'000;
  auto at_a = pair.a.buffer(2 * size);
  auto at_b = pair.b.buffer(2 * size);
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(pair.a.write(1, {at_a->sge(0, size)}, at_b->address() + size, at_b->rkey()), 0);
    ASSERT_EQ(pair.b.write(1, {at_b->sge(0, size)}, at_a->address() + size, at_a->rkey()), 0);
    ASSERT_EQ(pair.a.read(2, {at_a->sge(size, size)}, at_b->address(), at_b->rkey()), 0);
    ASSERT_EQ(pair.b.read(2, {at_b->sge(size, size)}, at_a->address(), at_a->rkey()), 0);
  }
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair.b.await().status, IBV_WC_SUCCESS);
  }
}

TEST(Transfer, UnsignaledRequestsCompleteSilently) {
  Pair pair;
  auto source = pair.a.buffer(8);
  auto sink = pair.b.buffer(8);
  for (int i = 0; i < 200; ++i) {
    const unsigned flags = i % 10 == 9 ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U;
    const auto id = static_cast<std::uint64_t>(i);
    ASSERT_EQ(pair.a.write(id, {source->sge(0, 8)}, sink->address(), sink->rkey(), flags), 0) << i;
    if (flags) {
      EXPECT_EQ(pair.a.await().wr_id, id);
    }
  }
  EXPECT_FALSE(pair.a.look());
}

// A list of Writes, of which the one at `bad` goes to memory that does not exist. Each is in its
// own place, with its own content.
struct WriteList {
  WriteList(End& from, Buffer& source, const Buffer& target, std::size_t count, std::size_t bad) {
    for (std::size_t i = 0; i < count; ++i) {
      slices.push_back(source.sge(i * size, i % 5 == 0 ? size : size - 3));
      ibv_send_wr request{};
      request.wr_id = i;
      request.num_sge = 1;
      request.opcode = IBV_WR_RDMA_WRITE;
      request.send_flags = i % 3 == 2 || i + 1 == count ? IBV_SEND_SIGNALED : 0;
      if (i % 7 == 6) request.send_flags |= IBV_SEND_INLINE;
      request.wr.rdma = {target.address() + (i == bad ? 1U << 20 : i * size), target.rkey()};
      requests.push_back(request);
    }
    for (std::size_t i = 0; i < count; ++i) {
      requests[i].sg_list = &slices[i];
      requests[i].next = i + 1 < count ? &requests[i + 1] : nullptr;
    }
    ibv_send_wr* refused = nullptr;
    EXPECT_EQ(ibv_post_send(from.queue_pair->verbs(), requests.data(), &refused), 0);
  }

  static constexpr std::size_t size = 64;
  std::vector<ibv_sge> slices;
  std::vector<ibv_send_wr> requests;
};

TEST(Transfer, AListOfWritesCompletesInOrder) {
  constexpr std::size_t count = 150;
  PairOptions options;
  options.ends.send_requests = count;
  Pair pair(options);
  const auto source = pair.a.buffer(count * WriteList::size);
  const auto target = pair.b.buffer(count * WriteList::size);
  source->fill(3);
  const WriteList list(pair.a, *source, *target, count, count);
  for (std::size_t i = 2; i < count; i += 3) {
    const ibv_wc completion = pair.a.await();
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    ASSERT_EQ(completion.wr_id, i);
  }
  EXPECT_FALSE(pair.a.look());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t from = i * WriteList::size;
    EXPECT_TRUE(target->holds(3, from, from + list.slices[i].length)) << i;
  }
}

// Those before it are placed and complete, those behind it are flushed.
TEST(Transfer, TheRightOneOfAListOfWritesFails) {
  constexpr std::size_t count = 20;
  constexpr std::size_t bad = 10;
  PairOptions options;
  options.ends.send_requests = count;
  Pair pair(options);
  const auto source = pair.a.buffer(count * WriteList::size);
  const auto target = pair.b.buffer(count * WriteList::size);
  source->fill(3);
  const WriteList list(pair.a, *source, *target, count, bad);
  for (const std::uint64_t id : {2, 5, 8}) {
    const ibv_wc completion = pair.a.await();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.wr_id, id);
  }
  ibv_wc completion = pair.a.await();
  EXPECT_EQ(completion.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(completion.wr_id, bad);
  for (std::uint64_t id = bad + 1; id < count; ++id) {
    completion = pair.a.await();
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion.wr_id, id);
  }
  for (std::size_t i = 0; i < bad; ++i) {
    const std::size_t from = i * WriteList::size;
    EXPECT_TRUE(target->holds(3, from, from + list.slices[i].length)) << i;
  }
  const std::vector<std::uint8_t> untouched((count - bad) * WriteList::size);
  const auto rest = target->bytes().subspan(bad * WriteList::size);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), untouched.begin()));
}

TEST(Transfer, FullSendQueueIsOutOfMemory) {
  PairOptions options;
  options.ends.send_requests = 4;
  Pair pair(options);
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  int posted = 0;
  int failed = 0;
  // Reads need a response, so the queue fills up faster than the peer responds.
  while (posted < 1000 && failed == 0) {
    failed = pair.a.read(1, {local->sge(0, 8)}, remote->address(), remote->rkey());
    if (failed == 0) ++posted;
  }
  EXPECT_EQ(failed, ENOMEM);
  EXPECT_GE(posted, 4);
  for (int i = 0; i < posted; ++i) EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
}

TEST(Transfer, WithoutAcknowledgementTheDataStillArrives) {
  PairOptions options;
  options.settings.acknowledge = false;
  Pair pair(options);
  auto source = pair.a.buffer(100'000);
  auto sink = pair.b.buffer(100'000);
  source->fill(2);
  ASSERT_EQ(pair.b.post_receive(1, {sink->sge(0, 100'000)}), 0);
  ASSERT_EQ(pair.a.send(2, {source->sge(0, 100'000)}), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.await().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(sink->holds(2, 0, 100'000));
}

// Several queue pairs receive into one buffer, as in perftest. The content of the buffer is
// undefined, but every message must arrive, so a CRC must not be computed over memory that another
// connection is changing.
TEST(Transfer, TwoQueuePairsReceiveIntoOneBuffer) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "two writers of one buffer are the point here, and a race to ThreadSanitizer";
#endif
  constexpr std::size_t size = 60'000;
  constexpr int messages = 300;
  Pair first;
  Pair second;
  std::vector<std::uint8_t> shared(size);
  const auto run = [&](Pair& pair, std::uint8_t seed) {
    auto source = pair.a.buffer(size);
    source->fill(seed);
    ibv_mr* mr =
        pair.b.context.register_memory(*pair.b.domain, shared.data(), size,
                                       reinterpret_cast<std::uint64_t>(shared.data()), all_access);
    const ibv_sge sink{reinterpret_cast<std::uint64_t>(shared.data()), size, mr->lkey};
    for (int i = 0; i < messages; ++i) {
      EXPECT_EQ(pair.b.post_receive(1, {sink}), 0);
      EXPECT_EQ(pair.a.send(2, {source->sge(0, size)}), 0);
      EXPECT_EQ(pair.b.await().status, IBV_WC_SUCCESS);
      EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
    }
    pair.b.context.deregister_memory(mr);
  };
  std::thread other([&] { run(second, 2); });
  run(first, 1);
  other.join();
}

// A source that changes during the send is sent with either content, and the connection stays up.
TEST(Transfer, SourceThatChangesUnderWay) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a source that changes is the point here, and a race to ThreadSanitizer";
#endif
  Pair pair;
  constexpr std::size_t size = 4'000'000;
  auto source = pair.a.buffer(size);
  auto sink = pair.b.buffer(size);
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(pair.a.write(1, {source->sge(0, size)}, sink->address(), sink->rkey()), 0);
    source->fill(static_cast<std::uint8_t>(round));
    ASSERT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
  }
}

class TransferModes : public testing::TestWithParam<std::tuple<ProgressMode, bool, bool>> {};

TEST_P(TransferModes, PingPong) {
  PairOptions options;
  options.settings.progress.mode = std::get<0>(GetParam());
  options.settings.crc = std::get<1>(GetParam());
  options.settings.strict_crc = std::get<2>(GetParam());
  Pair pair(options);
  constexpr std::size_t size = 200'000;
  auto at_a = pair.a.buffer(size);
  auto at_b = pair.b.buffer(2 * size);
  constexpr int rounds = 20;
  // Each side posts a receive before it sends the message that the peer waits for.
  pair.b.post_receive(1, {at_b->sge(0, size)});
  std::thread other([&] {
    for (int i = 0; i < rounds; ++i) {
      while (pair.b.await().opcode != IBV_WC_RECV) {
      }
      auto spare = i % 2 == 0 ? at_b->sge(size, size) : at_b->sge(0, size);
      auto filled = i % 2 == 0 ? at_b->sge(0, size) : at_b->sge(size, size);
      pair.b.post_receive(1, {spare});
      pair.b.send(2, {filled});
    }
  });
  for (int i = 0; i < rounds; ++i) {
    const auto seed = static_cast<std::uint8_t>(i);
    at_a->fill(seed);
    pair.a.post_receive(1, {at_a->sge(0, size)});
    pair.a.send(3, {at_a->sge(0, size)});
    int receives = 0;
    while (receives == 0) {
      const ibv_wc completion = pair.a.await();
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
      if (completion.opcode == IBV_WC_RECV) ++receives;
    }
    EXPECT_TRUE(at_a->holds(seed, 0, size));
  }
  other.join();
}

INSTANTIATE_TEST_SUITE_P(All, TransferModes,
                         testing::Combine(testing::Values(ProgressMode::automatic,
                                                          ProgressMode::thread,
                                                          ProgressMode::manual),
                                          testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace weft::device
