// Several threads that use one stream.
#include <algorithm>
#include <array>
#include <atomic>
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

}  // namespace
}  // namespace weft::stream
