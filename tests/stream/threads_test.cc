// Several threads that use one stream.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <thread>

#include "stream/sides.h"

namespace weft::stream {
namespace {

class Threads : public BothVariants {};
WEFT_BOTH_VARIANTS(Threads);

constexpr std::size_t record_bytes = 5000;

std::vector<std::byte> record(int thread, int number) {
  std::vector<std::byte> bytes(record_bytes, static_cast<std::byte>(thread));
  bytes[0] = std::byte{0xFF};
  bytes[1] = static_cast<std::byte>(number);
  return bytes;
}

// The bytes of one call stay together, on both sides.
TEST_P(Threads, TheBytesOfOneCallAreNeverMixed) {
  constexpr int senders = 4;
  constexpr int records = 60;
  Options wanted = options();
  wanted.send_buffer_bytes = wanted.receive_buffer_bytes =
      3000;  // each call needs the ring several times
  Sides sides(wanted);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < senders; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < records; ++i) {
        EXPECT_EQ(sides.active.send(record(thread, i), test_timeout).bytes, record_bytes);
      }
    });
  }
  std::atomic<int> left{senders * records};
  for (int thread = 0; thread < senders; ++thread) {
    threads.emplace_back([&] {
      while (left.fetch_sub(1) > 0) {
        const auto got = receive_all(*sides.passive, record_bytes);
        ASSERT_EQ(got.size(), record_bytes);
        EXPECT_EQ(got, record(static_cast<int>(got[2]), static_cast<int>(got[1])));
      }
    });
  }
}

// Four threads send, four receive, one closes: all calls return.
TEST_P(Threads, ClosingAmongThemIsSafe) {
  for (int round = 0; round < 5; ++round) {
    Sides sides(options());
    const auto bytes = test::pattern(20'000);
    std::atomic<int> working{0};
    std::vector<std::jthread> threads;
    for (Stream* side : {&sides.active, &*sides.passive}) {
      for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&, side] {
          ++working;
          while (side->send(bytes).ok()) continue;
        });
        threads.emplace_back([&, side] {
          ++working;
          std::vector<std::byte> some(7000);
          while (side->receive(some).ok()) continue;
        });
      }
    }
    while (working < 8 || sides.passive->statistics().bytes_received < 100'000) {
      std::this_thread::yield();
    }
    EXPECT_EQ(sides.active.state(), State::connected);
    sides.active.close(test_timeout);
  }
}

TEST_P(Threads, ManyPollWhileOthersSend) {
  Sides sides(options());
  std::atomic<bool> done{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!done) {
        (void)sides.passive->peek_receive();
        (void)sides.active.peek_send();
        (void)sides.active.fd();
        (void)sides.passive->statistics();
      }
    });
  }
  const auto bytes = test::pattern(2'000'000);
  std::jthread sender([&] { EXPECT_TRUE(sides.active.send(bytes, test_timeout).ok()); });
  EXPECT_EQ(receive_all(*sides.passive, bytes.size()), bytes);
  done = true;
}

// A call that sleeps, in a thread of its own: it takes one byte and sends it back.
void send_back(Stream& stream) {
  std::byte one{};
  EXPECT_EQ(stream.receive(std::span(&one, 1), test_timeout).bytes, 1U);
  EXPECT_EQ(stream.send(std::span(&one, 1), test_timeout).bytes, 1U);
}

// The call that sleeps first serves the descriptors of all streams, whichever is woken first.
TEST_P(Threads, CallsThatSleepDoNotNeedEachOther) {
  Options wanted = options();
  wanted.spin = 0us;
  std::array<Sides, 3> all{Sides(wanted), Sides(wanted), Sides(wanted)};
  for (std::size_t round = 0; round < 30; ++round) {
    std::vector<std::jthread> sleepers;
    for (Sides& sides : all) sleepers.emplace_back([&] { send_back(*sides.passive); });
    for (std::size_t i = 0; i < all.size(); ++i) {
      Stream& active = all[(round + i) % all.size()].active;
      const std::byte sent{static_cast<unsigned char>(round)};
      EXPECT_EQ(active.send(std::span(&sent, 1), test_timeout).bytes, 1U);
      EXPECT_EQ(receive_all(active, 1), std::vector{sent});
    }
  }
}

// The one that serves the descriptors is ended by a call of another thread, and by its deadline.
TEST_P(Threads, CallsThatSleepGoOnWithoutTheFirst) {
  Options wanted = options();
  wanted.spin = 0us;
  for (int round = 0; round < 20; ++round) {
    std::array<Sides, 2> all{Sides(wanted), Sides(wanted)};
    std::byte none{};
    std::jthread closed([&] {
      const auto outcome = all[0].passive->receive(std::span(&none, 1), test_timeout);
      EXPECT_EQ(outcome.error_number, ECANCELED);
    });
    std::jthread answers([&] { send_back(*all[1].passive); });
    std::jthread late([&] {
      std::byte other{};
      EXPECT_TRUE(all[1].active.receive(std::span(&other, 1), 1ms).would_block());
    });
    late.join();
    all[0].passive->close(test_timeout);
    const std::byte sent{7};
    EXPECT_EQ(all[1].active.send(std::span(&sent, 1), test_timeout).bytes, 1U);
    EXPECT_EQ(receive_all(all[1].active, 1), std::vector{sent});
  }
}

}  // namespace
}  // namespace weft::stream
