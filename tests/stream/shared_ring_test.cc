// Rings in shared memory: bytes arrive in order whatever the sizes, and a peer that publishes
// impossible counters, or passes other memory, is found.
#include "stream/shared_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "stream/flow_control.h"
#include "support/random.h"

namespace weft::stream::detail {
namespace {

constexpr std::uint32_t rows = 3;
constexpr std::uint32_t receives = 10;

std::size_t file_bytes(std::uint32_t ring) {
  return shared_ring_bytes(ring, rows, receives);
}

FlowSizes sizes_of(std::uint32_t ring, std::uint32_t part) {
  return {.send_ring_bytes = ring,
          .sends = 4,
          .peer_ring_bytes = ring,
          .peer_receives = 4,
          .receive_ring_bytes = ring,
          .receives = 4,
          .send_part_bytes = part,
          .peer_part_bytes = part,
          .receive_part_bytes = part};
}

std::uint32_t random_up_to(test::Random& random, std::uint32_t most) {
  return static_cast<std::uint32_t>(random.between(1, most));
}

// One direction of a stream whose sender already places.
class Direction {
 public:
  Direction(std::uint32_t ring, std::uint32_t part, Descriptor bell = {})
      : memory_(RingMemory::make_shared(file_bytes(ring), file_)),
        reader(prepared(memory_.bytes().data())),
        from(sizes_of(ring, part)),
        to(sizes_of(ring, part)),
        writer(*SharedRingWriter::open(std::move(file_), std::move(bell), ring, file_bytes(ring))) {
    const auto word = from.start_placing();
    EXPECT_TRUE(word && to.received(*word, 0));
    writer.start(0, 0);
  }
  [[nodiscard]] RingCounters& counters() {
    return *reinterpret_cast<RingCounters*>(memory_.bytes().data());
  }
  // Returns how many bytes were placed.
  std::uint32_t send(std::uint32_t wanted) {
    bool grown = false;
    const Piece piece = from.take_placed(wanted, grown);
    if (grown) writer.note_growth();
    for (std::uint32_t i = 0; i < piece.bytes; ++i) {
      writer.ring()[piece.to + i] = static_cast<std::byte>(sent++ * 7);
    }
    if (piece.bytes > 0) writer.publish(piece.bytes);
    return piece.bytes;
  }
  // False if the sender violates the protocol.
  [[nodiscard]] bool look() {
    std::uint64_t left = reader.arrived();
    while (left > 0) {
      if (reader.take_growth() && !to.received_placed_growth()) return false;
      const std::uint32_t bytes = to.received_placed(left);
      if (bytes == 0) return false;
      reader.count_received(bytes);
      left -= bytes;
    }
    return true;
  }
  void read(std::uint32_t most) {
    const auto [at, side_by_side] = to.unread();
    const std::uint32_t bytes = std::min(most, side_by_side);
    for (std::uint32_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(memory_.bytes()[ring_offset + at + i], static_cast<std::byte>(got++ * 7));
    }
    to.read(bytes);
    reader.count_read(bytes);
  }
  [[nodiscard]] bool take_room() {
    const auto room = writer.take_room();
    if (room) from.room_returned(*room);
    return room.has_value();
  }

 private:
  static std::byte* prepared(std::byte* at) {
    SharedRingReader::prepare(at);
    return at;
  }

  Descriptor file_;
  RingMemory memory_;

 public:
  SharedRingReader reader;
  FlowControl from;
  FlowControl to;
  SharedRingWriter writer;
  std::uint64_t sent = 0;
  std::uint64_t got = 0;
};

TEST(SharedRing, DeliversEverythingInAnyOrderOfEvents) {
  for (std::uint32_t ring = 1; ring <= 20; ++ring) {
    for (std::uint32_t part = 1; part <= ring; ++part) {
      for (const auto seed : test::seeds(4)) {
        SCOPED_TRACE(test::seed_trace(seed));
        Direction way(ring, part);
        test::Random random(seed);
        for (int i = 0; i < 1000 || way.got < way.sent; ++i) {
          if (i < 1000 && random.below(2) == 0) way.send(random_up_to(random, ring + 3));
          const bool looks = random.below(2) == 0;
          ASSERT_TRUE(!looks || way.look());
          if (random.below(2) == 0) way.read(random_up_to(random, ring));
          const bool takes = random.below(2) == 0;
          ASSERT_TRUE(!takes || way.take_room());
        }
        ASSERT_GT(way.got, 100U);
        ASSERT_TRUE(way.take_room());
        EXPECT_EQ(way.from.peer_used(), 0U);
      }
    }
  }
}

TEST(SharedRing, ARingGrowsToItsFullSizeWhenNothingIsRead) {
  Direction way(100, 8);
  while (way.send(1000) > 0 || way.from.can_send()) continue;
  EXPECT_EQ(way.sent, 100U);
  ASSERT_TRUE(way.look());
  EXPECT_EQ(way.to.readable(), 100U);
  while (way.got < 100) way.read(100);
}

// Positions go on, and only bytes that were read are lost.
TEST(SharedRing, PagesThatWereGivenBackAreUsedAgain) {
  constexpr std::uint32_t ring = 256 * 1024;
  Direction direction(ring, 4096);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t done = 0; done < 2 * ring; done += 1000) {
      ASSERT_EQ(direction.send(1000) > 0, true);
      ASSERT_TRUE(direction.look());
      while (direction.to.readable() > 0) direction.read(1000);
      ASSERT_TRUE(direction.take_room());
    }
    ASSERT_EQ(direction.from.peer_used(), 0U);
    direction.writer.ring()[ring / 2] = std::byte{1};
    direction.writer.give_back_pages(8192);
    EXPECT_EQ(direction.writer.ring()[ring / 2], std::byte{0});
    EXPECT_NE(direction.counters().written, 0U) << "the counters stay";
  }
}

TEST(SharedRing, AWriterThatPublishesImpossibleCountsIsFound) {
  // Ten bytes have arrived, and 54 are free.
  for (const std::uint64_t hostile :
       {~std::uint64_t{0}, std::uint64_t{1} << 40, std::uint64_t{65}, std::uint64_t{9}}) {
    Direction way(64, 64);
    ASSERT_EQ(way.send(10), 10U);
    ASSERT_TRUE(way.look());
    way.counters().written = hostile;
    EXPECT_FALSE(way.look()) << hostile;
    EXPECT_LE(way.to.readable(), 64U);
    const auto [at, bytes] = way.to.unread();
    EXPECT_LE(at + bytes, 64U);
  }
}

TEST(SharedRing, AGrowthThatIsNotPossibleIsFound) {
  Direction whole(64, 64);
  ASSERT_EQ(whole.send(10), 10U);
  ASSERT_TRUE(whole.look());
  whole.counters().grown_at[0] = 10;  // in the middle
  whole.send(1);
  EXPECT_FALSE(whole.look());

  Direction full(16, 16);
  ASSERT_EQ(full.send(16), 16U);
  ASSERT_TRUE(full.look());
  full.read(16);
  ASSERT_TRUE(full.take_room());
  full.counters().grown_at[0] = 16;  // beyond the ring
  full.send(1);
  EXPECT_FALSE(full.look());
}

TEST(SharedRing, AReaderThatPublishesImpossibleCountsIsFound) {
  for (const std::uint64_t hostile : {std::uint64_t{31}, ~std::uint64_t{0}, std::uint64_t{4}}) {
    Direction way(64, 64);
    ASSERT_EQ(way.send(30), 30U);
    ASSERT_TRUE(way.look());
    way.read(5);
    ASSERT_TRUE(way.take_room());
    way.counters().read = hostile;  // more than was sent, or less than before
    EXPECT_FALSE(way.take_room()) << hostile;
    EXPECT_EQ(way.from.peer_used(), 25U);
  }
}

TEST(SharedRing, ASideIsWokenOncePerRequest) {
  Direction way(64, 64);
  EXPECT_FALSE(way.writer.reader_waits());
  EXPECT_FALSE(way.reader.wake().answered());  // no request
  way.reader.request_wake(WakeBy::message);
  way.reader.request_wake(WakeBy::message);
  EXPECT_TRUE(way.writer.reader_waits());
  way.reader.request_wake(WakeBy::message);  // a wake-up is under way
  EXPECT_FALSE(way.writer.reader_waits());
  EXPECT_TRUE(way.reader.wake().answered());
  way.reader.request_wake(WakeBy::message);
  EXPECT_TRUE(way.writer.reader_waits());

  way.writer.request_wake();
  EXPECT_TRUE(way.reader.writer_waits());
  EXPECT_FALSE(way.reader.writer_waits());
  EXPECT_TRUE(way.writer.wake().answered());
}

// The bell is one end of a socket pair; its reader holds the other end.
TEST(SharedRing, ABellWakesWithoutAMessage) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Descriptor heard(ends[0]);
  Direction way(64, 64, Descriptor(ends[1]));
  const auto rung = [&] {
    char byte;
    return recv(heard.get(), &byte, 1, MSG_DONTWAIT) == 1;
  };
  way.reader.request_wake(WakeBy::bell);
  EXPECT_FALSE(rung());
  EXPECT_FALSE(way.writer.reader_waits());  // for a message
  EXPECT_TRUE(rung());
  EXPECT_FALSE(way.writer.reader_waits());
  EXPECT_FALSE(rung());
  EXPECT_TRUE(way.reader.take_back_bell());
  EXPECT_FALSE(way.reader.take_back_bell());  // no request

  way.reader.request_wake(WakeBy::bell);
  EXPECT_FALSE(way.reader.take_back_bell());  // in time
  EXPECT_FALSE(way.writer.reader_waits());
  EXPECT_FALSE(rung());

  // A message is no answer to a request for the bell.
  way.reader.request_wake(WakeBy::bell);
  EXPECT_FALSE(way.reader.wake().answered());
}

// A writer that has seen a request, and is stopped before it answers, must not answer the next one,
// for which it has nothing: the reader would not know of that bell.
TEST(SharedRing, AnEarlierRequestIsNotAnsweredLate) {
  std::atomic<std::uint32_t> flag{0};
  WakeRequest request;
  request.make(flag, WakeBy::bell);
  const std::uint32_t seen = flag;
  EXPECT_FALSE(request.take_back_bell(flag));
  request.make(flag, WakeBy::bell);
  EXPECT_EQ(answer_request(flag, seen), WakeBy::none);
  EXPECT_EQ(answer_request(flag, flag), WakeBy::bell);
  EXPECT_TRUE(request.take_back_bell(flag));
}

// A number that one thread changes and another one waits for, which it does asleep: to yield gives
// the processor away for a whole time slice where others want it.
class Progress {
 public:
  // To look so often before sleep_while(), so that two threads that run at the same time meet.
  static constexpr int looks = 20'000;
  [[nodiscard]] std::uint32_t now() const { return now_; }
  void set(std::uint32_t now) {
    now_ = now;
    if (sleeps_) syscall(SYS_futex, &now_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  void sleep_while(std::uint32_t seen) {
    sleeps_ = true;
    syscall(SYS_futex, &now_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    sleeps_ = false;
  }

 private:
  std::atomic<std::uint32_t> now_{0};
  std::atomic<bool> sleeps_{false};
};

// Gives the calling thread one of the processors that it may use, as long as this lives. Threads
// that wake each other would share one otherwise, and never run at the same time.
class OnProcessor {
 public:
  explicit OnProcessor(int number) {
    sched_getaffinity(0, sizeof allowed_, &allowed_);
    number %= CPU_COUNT(&allowed_);
    std::size_t processor = 0;
    while (!CPU_ISSET(processor, &allowed_) || number-- > 0) ++processor;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnProcessor() { sched_setaffinity(0, sizeof allowed_, &allowed_); }
  OnProcessor(const OnProcessor&) = delete;
  OnProcessor& operator=(const OnProcessor&) = delete;

 private:
  cpu_set_t allowed_{};
};

// The reader takes its requests back while the writer answers them: each bell must have been
// reported to the reader, by the request that it answers, and none may be reported that was not
// rung.
TEST(SharedRing, EachBellThatIsRungIsCounted) {
  constexpr std::uint32_t total = 100'000;
  constexpr std::uint32_t ahead = 2;
  Progress taken;
  Progress published;
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Descriptor here(ends[0]);
  Direction way(4096, 4096, Descriptor(ends[1]));
  std::thread writer([&] {
    const OnProcessor second(1);
    for (std::uint32_t i = 0; i < total; ++i) {
      int looks = 0;
      for (std::uint32_t seen; i > (seen = taken.now()) + ahead;) {
        if (++looks > Progress::looks) taken.sleep_while(seen);
      }
      way.writer.publish(1);
      EXPECT_FALSE(way.writer.reader_waits());  // a bell, and no message
      published.set(i + 1);
    }
  });
  std::uint64_t counted = 0;
  std::uint64_t rung = 0;
  const auto take_bells = [&] {
    std::array<char, 4096> bytes;
    const ssize_t got = recv(here.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) rung += static_cast<std::uint64_t>(got);
  };
  const OnProcessor first(0);
  int looks = 0;
  for (std::uint32_t received = 0; received < total;) {
    way.reader.request_wake(WakeBy::bell);
    const auto left = static_cast<std::uint32_t>(way.reader.arrived());
    if (left == 0) {
      if (++looks > Progress::looks) published.sleep_while(received);
      continue;
    }
    looks = 0;
    counted += way.reader.take_back_bell();
    way.reader.count_received(left);
    received += left;
    taken.set(received);
    take_bells();
  }
  writer.join();
  counted += way.reader.take_back_bell();
  take_bells();
  EXPECT_EQ(rung, counted);
}

// The peer may place bytes before this side has noticed that the connection is established.
TEST(SharedRing, BytesThatWereThereBeforeTheReaderCount) {
  Descriptor file;
  const RingMemory memory = RingMemory::make_shared(file_bytes(64), file);
  std::byte* const counters = memory.bytes().data();
  SharedRingReader::prepare(counters);
  auto writer = SharedRingWriter::open(std::move(file), {}, 64, file_bytes(64));
  ASSERT_TRUE(writer);
  writer->start(0, 0);
  writer->publish(7);
  const SharedRingReader reader(counters);
  EXPECT_EQ(reader.arrived(), 7U);
}

// Memory that can shrink would end this process at its next access.
TEST(SharedRing, OtherMemoryIsRefused) {
  const auto file = [](std::size_t bytes, int seals) {
    Descriptor made(memfd_create("weft-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(made.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fcntl(made.get(), F_ADD_SEALS, seals), 0);
    return made;
  };
  const std::size_t bytes = file_bytes(5000);
  const int sealed = F_SEAL_SHRINK | F_SEAL_GROW;
  EXPECT_FALSE(SharedRingWriter::open(file(bytes, 0), {}, 5000, bytes));
  EXPECT_FALSE(SharedRingWriter::open(file(bytes, F_SEAL_GROW), {}, 5000, bytes));
  EXPECT_FALSE(SharedRingWriter::open(file(bytes - 1, sealed), {}, 5000, bytes));
  EXPECT_FALSE(SharedRingWriter::open(file(0, sealed), {}, 5000, bytes));
  EXPECT_FALSE(SharedRingWriter::open(file(bytes, sealed | F_SEAL_WRITE), {}, 5000, bytes));
  EXPECT_TRUE(SharedRingWriter::open(file(bytes, sealed), {}, 5000, bytes));
}

// The other process can give their pages back to the kernel in spite of the seals.
TEST(SharedRing, MemoryOfHugePagesIsRefused) {
  constexpr std::size_t bytes = std::size_t{2} << 20;
  Descriptor file(memfd_create("weft-test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!file.valid() || ftruncate(file.get(), bytes) != 0) GTEST_SKIP() << "no huge pages";
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) GTEST_SKIP() << "no huge pages are free (vm.nr_hugepages)";
  munmap(at, bytes);
  EXPECT_FALSE(SharedRingWriter::open(std::move(file), {}, 5000, bytes));
}

TEST(SharedRing, DataAsMessagesMayNotFollow) {
  Direction way(64, 64);
  EXPECT_FALSE(way.to.received(encode(Kind::data, 1), 1));
  EXPECT_FALSE(way.to.received(encode(Kind::place, 0), 0));
  EXPECT_FALSE(way.to.received(encode(Kind::grow, 128), 0));
  EXPECT_TRUE(way.to.received(encode(Kind::end, 0), 0));
  EXPECT_TRUE(way.to.received(encode(Kind::wake, 1), 0));  // the other direction goes on
}

// A mapped write must be placed before the bytes behind it.
TEST(SharedRing, NothingIsPlacedWhileAMappedWriteIsUnderWay) {
  Direction way(64, 64);
  ASSERT_EQ(way.from.take_mapped(5).bytes, 5U);
  EXPECT_FALSE(way.from.can_send());
  EXPECT_EQ(way.send(5), 0U);
  way.from.sent(5);
  EXPECT_EQ(way.send(5), 5U);
}

}  // namespace
}  // namespace weft::stream::detail
