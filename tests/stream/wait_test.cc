// Descriptors, event queues and watchers report every change, and no change that did not happen.
#include <poll.h>

#include <algorithm>
#include <array>
#include <future>
#include <map>

#include "stream/sides.h"
#include "support/host.h"

namespace weft::stream {
namespace {

bool is_readable(int fd, int timeout_ms = 0) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}
bool becomes_readable(int fd) {
  return is_readable(fd, 60'000);
}

class Waiting : public BothVariants {};
WEFT_BOTH_VARIANTS(Waiting);

TEST_P(Waiting, TheDescriptorIsReadableWhileSomethingWaits) {
  Sides sides(options());
  const int fd = sides.passive->fd();
  EXPECT_EQ(sides.passive->fd(), fd);
  EXPECT_FALSE(is_readable(fd));
  ASSERT_TRUE(sides.active.send(bytes_of("abc"), test_timeout).ok());
  EXPECT_TRUE(becomes_readable(fd));
  EXPECT_EQ(text_of(receive_all(*sides.passive, 1)), "a");
  EXPECT_TRUE(is_readable(fd)) << "two bytes are left";
  EXPECT_EQ(text_of(receive_all(*sides.passive, 2)), "bc");
  EXPECT_FALSE(is_readable(fd));

  sides.active.finish();
  EXPECT_TRUE(becomes_readable(fd));
  EXPECT_TRUE(sides.passive->peek_receive().ok());
  std::vector<std::byte> more(1);
  EXPECT_TRUE(sides.passive->receive(more, Deadline::now()).end());
  EXPECT_FALSE(is_readable(fd)) << "the end was told";
}

TEST_P(Waiting, TheDescriptorReportsWhenARefusedSendCanGoOn) {
  Options wanted = options();
  wanted.growth_bytes = 0;
  Sides sides(wanted);
  const int fd = sides.active.fd();
  EXPECT_TRUE(sides.active.peek_send().ok());
  EXPECT_FALSE(is_readable(fd)) << "nobody was refused";
  const auto bytes = test::pattern(100'000);
  while (sides.active.send(bytes, Deadline::now()).ok()) continue;
  EXPECT_FALSE(is_readable(fd));
  std::vector<std::byte> some(32'768);
  ASSERT_TRUE(sides.passive->receive(some, test_timeout, {.wait_all = true}).ok());
  EXPECT_TRUE(becomes_readable(fd));
  EXPECT_TRUE(sides.active.peek_send().ok());
  EXPECT_FALSE(is_readable(fd)) << "it was looked at";
}

// A program that does not receive before it has sent sleeps on it, whatever has arrived.
TEST_P(Waiting, TheSendDescriptorIsReadableOnlyWhileARefusedSendCanGoOn) {
  Options wanted = options();
  wanted.growth_bytes = 0;
  Sides sides(wanted);
  const int fd = sides.active.send_fd();
  EXPECT_EQ(sides.active.send_fd(), fd);
  ASSERT_TRUE(sides.passive->send(bytes_of("unread"), test_timeout).ok());
  EXPECT_TRUE(becomes_readable(sides.active.fd()));
  EXPECT_FALSE(is_readable(fd)) << "no send was refused";
  const auto bytes = test::pattern(100'000);
  while (sides.active.send(bytes, Deadline::now()).ok()) continue;
  EXPECT_FALSE(is_readable(fd));
  std::vector<std::byte> some(32'768);
  ASSERT_TRUE(sides.passive->receive(some, test_timeout, {.wait_all = true}).ok());
  EXPECT_TRUE(becomes_readable(fd));
  while (sides.active.send(bytes, Deadline::now()).ok()) continue;
  EXPECT_FALSE(is_readable(fd));
  sides.passive->abort();
  EXPECT_TRUE(becomes_readable(fd)) << "the next send fails";
}

TEST_P(Waiting, TheDescriptorReportsAReset) {
  Sides sides(options());
  const int fd = sides.passive->fd();
  sides.active.abort();
  EXPECT_TRUE(becomes_readable(fd));
  EXPECT_TRUE(sides.passive->peek_receive().ok());
}

TEST_P(Waiting, TheDescriptorReportsTheResultOfConnecting) {
  Listener listener({test::host(), 0}, options());
  listener.listen();
  Stream active(options());
  const int fd = active.fd();
  EXPECT_FALSE(is_readable(fd));
  active.start_connecting({test::host(), listener.port()});
  ASSERT_TRUE(becomes_readable(listener.fd()));
  auto passive = listener.accept(test_timeout);
  EXPECT_TRUE(becomes_readable(fd));
  EXPECT_EQ(active.state(), State::connected);
  EXPECT_FALSE(is_readable(fd));
}

// A program that only polls descriptors, and never waits in a call of a stream.
TEST_P(Waiting, AProgramThatOnlyPollsGetsEverything) {
  constexpr std::size_t total = 8 * 1024 * 1024;
  Sides sides(options());
  const auto bytes = test::pattern(total);
  auto sender =
      std::async(std::launch::async, [&] { return sides.active.send(bytes, test_timeout); });
  std::vector<std::byte> got(total);
  std::size_t done = 0;
  int empty_wake_ups = 0;
  while (done < total && becomes_readable(sides.passive->fd())) {
    if (sides.passive->peek_receive().would_block()) {
      ++empty_wake_ups;
      continue;
    }
    done += sides.passive->receive(std::span(got).subspan(done), Deadline::now()).bytes;
  }
  EXPECT_EQ(done, total);
  EXPECT_EQ(empty_wake_ups, 0);
  EXPECT_TRUE(got == bytes);
  EXPECT_EQ(sender.get().bytes, total);
}

// --- Event queues --------------------------------------------------------------------------------

TEST_P(Waiting, OneQueueServesManyStreams) {
  constexpr std::uint64_t many = 100;
  constexpr std::uint64_t door = 1000;
  EventQueue queue;
  Listener listener({test::host(), 0}, options());
  listener.attach(&queue, door);
  std::vector<Stream> active;
  for (std::uint64_t i = 0; i < many; ++i) {
    active.emplace_back(options());
    active.back().attach(&queue, i);
    const std::string name = std::to_string(i);
    active.back().start_connecting({test::host(), listener.port()}, bytes_of(name));
  }
  std::map<std::string, Stream> passive;
  std::vector<bool> connected(many);
  for (std::uint64_t seen = 0; seen < 2 * many; ++seen) {
    auto event = queue.next(test_timeout);
    ASSERT_TRUE(event);
    if (event->type == EventType::connect_request) {
      EXPECT_EQ(event->cookie, door);
      const std::string name = text_of(event->request->private_data());
      passive.emplace(name, std::move(*event->request).accept());
    } else {
      ASSERT_EQ(event->type, EventType::connected);
      ASSERT_LT(event->cookie, many);
      EXPECT_FALSE(connected[event->cookie]);
      connected[event->cookie] = true;
    }
  }
  for (std::uint64_t i = 0; i < many; ++i) {
    const std::string name = std::to_string(i);
    ASSERT_TRUE(active[i].send(bytes_of(name), test_timeout).ok());
    EXPECT_EQ(text_of(receive_all(passive.at(name), name.size())), name);
  }
  passive.at("7").close(test_timeout);
  passive.at("8").abort();
  std::map<std::uint64_t, int> ended;
  for (int i = 0; i < 2; ++i) {
    const auto event = queue.next(test_timeout);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->type, EventType::shutdown);
    ended[event->cookie] = event->error_number;
  }
  EXPECT_EQ(ended, (std::map<std::uint64_t, int>{{7, 0}, {8, ECONNRESET}}));
  EXPECT_FALSE(queue.next(Deadline::now()));
  EXPECT_FALSE(is_readable(queue.fd()));
}

// Peers cannot fill a queue that is not read: further requests wait in the backlog, and come when
// earlier ones were taken.
TEST(EventQueue, HasALimitedNumberOfRequestsOfAListener) {
  constexpr std::size_t limit = 128;
  constexpr std::size_t many = limit + 16;
  EventQueue queue;
  EventQueue last;
  Listener listener({test::host(), 0});
  Listener later({test::host(), 0});
  listener.listen(many);
  listener.attach(&queue, 0);
  later.attach(&last, 0);
  std::vector<Stream> active(many + 1);
  for (Stream& stream : active) {
    stream.start_connecting(
        {test::host(), &stream == &active.back() ? later.port() : listener.port()}, {});
  }
  ASSERT_TRUE(last.next(test_timeout));
  ASSERT_TRUE(queue.next(test_timeout));
  listener.attach(nullptr, 0);
  std::size_t taken = 1;
  while (queue.next(Deadline::now())) ++taken;
  EXPECT_LE(taken, limit + 1);
  listener.attach(&queue, 0);
  for (; taken < many; ++taken) ASSERT_TRUE(queue.next(test_timeout));
}

TEST(EventQueue, ReportsAttemptsThatFail) {
  EventQueue queue;
  std::uint16_t port;
  {
    const Listener gone({test::host(), 0});
    port = gone.port();
  }
  Stream stream;
  stream.attach(&queue, 5);
  stream.start_connecting({test::host(), port});
  const auto event = queue.next(test_timeout);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, EventType::failed);
  EXPECT_EQ(event->cookie, 5U);
  EXPECT_EQ(event->error_number, ECONNREFUSED);
}

// A peer that accepts at once has often accepted before start_connecting() returns.
TEST(EventQueue, ReportsConnectionsThatExistAtOnce) {
  constexpr std::uint64_t many = 300;
  EventQueue queue;
  Listener listener({test::host(), 0});
  // Adapters refuse a request at once if no listener exists yet, so the thread would be too late.
  listener.listen();
  auto accepted = std::async(std::launch::async, [&] {
    for (std::uint64_t i = 0; i < many; ++i) {
      Stream passive = listener.accept(test_timeout);
      std::vector<std::byte> more(1);
      (void)passive.receive(more, test_timeout);  // the end
    }
  });
  for (std::uint64_t i = 0; i < many; ++i) {
    Stream stream;
    stream.attach(&queue, i);
    stream.start_connecting({test::host(), listener.port()});
    const auto event = queue.next(std::chrono::seconds(20));
    ASSERT_TRUE(event) << i;
    ASSERT_EQ(event->type, EventType::connected) << i << ": " << event->error_number;
    EXPECT_EQ(event->cookie, i);
  }
}

TEST(EventQueue, MayBeDestroyedBeforeItsStreams) {
  Sides sides;
  {
    EventQueue queue;
    sides.passive->attach(&queue, 1);
    sides.listener.attach(&queue, 2);
  }
  sides.active.close(test_timeout);
  std::vector<std::byte> more(1);
  EXPECT_TRUE(sides.passive->receive(more, test_timeout).end());
}

}  // namespace
}  // namespace weft::stream
