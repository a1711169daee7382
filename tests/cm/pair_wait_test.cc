// A thread that waits for an event of the connection manager sleeps where the process that it has
// to do with wakes it (cm/pair_wait.h): the other end of the pair is made by hand here.
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "cm/hostile_fixture.h"
#include "cm/newer.h"
#include "device/local/pair_bells.h"
#include "support/counting_handler.h"

namespace weft::cm {
namespace {

using device::PairMailReader;
using device::PairMailWriter;
using device::Waiting;

class PairWaitTest : public HostilePair {
 protected:
  // Its first request has come over the channel, with files; so the program waits at this pair.
  HostileEnd make_end() {
    HostileEnd end = HostileEnd::that_dials(*device_);
    whole_ = end.request(*context_, target());
    end.send(whole_.header, whole_.frame, whole_.files);
    writer_.sent_by_channel();
    serve_event(strangers_);
    // The event comes a moment before that.
    await([&] { return bells_of_device(end).mail.handled == 1; });
    whole_.header.files = {};
    return end;
  }

  [[nodiscard]] static device::PairBells& bells_of_device(HostileEnd& end) { return end.bells(1); }

  // The next request, in shared memory. The device needs what make_end() has sent.
  void put_request(HostileEnd& end) {
    ++whole_.header.number;
    EXPECT_TRUE(writer_.put(bells_of_device(end).mail, std::as_bytes(std::span(&whole_.header, 1)),
                            whole_.frame));
  }
  static void announce(HostileEnd& end) {
    bells_of_device(end).pending = 1;
    const Waiting waiting = bells_of_device(end).waiting;
    const bool awake =
        waiting == Waiting::looks ||
        (waiting == Waiting::sleeps && device::sys::wake_sleeper(&bells_of_device(end).waiting));
    if (awake) return;
    constexpr auto kind = device::pair_message::Kind::bells;
    end.send(std::as_bytes(std::span(&kind, 1)));
  }

  // A thread of the program that waits for one event.
  std::thread wait_for_event() {
    result_ = -1;
    over_ = false;
    return std::thread([this] {
      rdma_cm_event* event = nullptr;
      result_ = manager_->get_cm_event(strangers_, &event) == 0 ? 0 : errno;
      event_ = Event(event, Acknowledge{manager_.get()});
      over_ = true;
    });
  }
  static void await(const std::function<bool()>& condition) {
    const std::uint64_t end_ns = device::sys::now_ns() + std::uint64_t{patience_ms} * 1'000'000;
    while (!condition()) {
      ASSERT_LT(device::sys::now_ns(), end_ns);
      std::this_thread::yield();
    }
  }
  static void await(HostileEnd& end, Waiting wanted) {
    await([&] { return bells_of_device(end).waiting == wanted; });
  }
  void expect_request() {
    ASSERT_TRUE(event_);
    EXPECT_EQ(event_->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_cm_id* const id = event_->id;
    event_.reset();
    manager_->reject(id, nullptr, 0);
    manager_->destroy_id(id);
  }

  HostileEnd::Whole whole_;
  PairMailWriter writer_;
  std::atomic<int> result_{-1};
  std::atomic<bool> over_{false};
  Event event_;
};

TEST_F(PairWaitTest, ThePeerWakesTheThreadThatWaits) {
  HostileEnd end = make_end();
  for (int i = 0; i < 3; ++i) {
    std::thread thread = wait_for_event();
    await(end, Waiting::sleeps);
    put_request(end);
    announce(end);
    thread.join();
    EXPECT_EQ(result_, 0);
    EXPECT_EQ(bells_of_device(end).waiting, Waiting::none);
    expect_request();
  }
}

TEST_F(PairWaitTest, AnEventOfAnotherThreadWakesItAsWell) {
  HostileEnd end = make_end();
  std::thread thread = wait_for_event();
  await(end, Waiting::sleeps);
  EXPECT_EQ(manager_->write_cm_event(target_, newer::event_user, 0, 7), 0);
  thread.join();
  EXPECT_EQ(result_, 0);
  ASSERT_TRUE(event_);
  event_.reset();
}

// The word on which the thread sleeps is in memory that the peer may write to.
TEST_F(PairWaitTest, APeerCannotKeepItAsleep) {
  HostileEnd end = make_end();
  for (const Waiting wrong : {Waiting::none, Waiting::looks, static_cast<Waiting>(77)}) {
    std::thread thread = wait_for_event();
    await(end, Waiting::sleeps);
    bells_of_device(end).waiting = wrong;
    EXPECT_EQ(manager_->write_cm_event(target_, newer::event_user, 0, 7), 0);
    thread.join();
    EXPECT_EQ(result_, 0);
    event_.reset();
  }
}

// The thread is gone, and what comes finds the progress thread.
TEST_F(PairWaitTest, ACancelledThreadIsNotWaitedFor) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not follow the stack of a cancelled thread";
#endif
  HostileEnd end = make_end();
  std::thread thread = wait_for_event();
  await(end, Waiting::sleeps);
  pthread_cancel(thread.native_handle());
  thread.join();
  EXPECT_EQ(bells_of_device(end).waiting, Waiting::none);
  put_request(end);
  announce(end);
  serve_event(strangers_);
}

// The peer has seen that the thread sleeps, and it was cancelled before it could look.
TEST_F(PairWaitTest, WhatACancelledThreadHasNotSeenIsNotLost) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not follow the stack of a cancelled thread";
#endif
  HostileEnd end = make_end();
  std::thread thread = wait_for_event();
  await(end, Waiting::sleeps);
  put_request(end);
  bells_of_device(end).pending = 1;
  pthread_cancel(thread.native_handle());
  thread.join();
  serve_event(strangers_);
}

TEST_F(PairWaitTest, ThePeersEndLeavesTheThreadWaiting) {
  std::optional<HostileEnd> end(make_end());
  std::thread thread = wait_for_event();
  await(*end, Waiting::sleeps);
  end.reset();
  EXPECT_EQ(manager_->write_cm_event(target_, newer::event_user, 0, 7), 0);
  thread.join();
  EXPECT_EQ(result_, 0);
  event_.reset();
}

// As read(2) ends: signal(7).
TEST_F(PairWaitTest, ASignalInterruptsItWhereTheHandlerIsMadeSo) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer holds signals back in futex(2)";
#endif
  for (const bool restarts : {true, false}) {
    SCOPED_TRACE(restarts);
    const test::CountingHandler handler(SIGUSR1, restarts ? SA_RESTART : 0);
    HostileEnd end = make_end();
    std::thread thread = wait_for_event();
    await(end, Waiting::sleeps);
    // The thread may be on its way into the call that sleeps.
    while (handler.handled() == 0 || (!restarts && !over_)) {
      pthread_kill(thread.native_handle(), SIGUSR1);
      std::this_thread::yield();
    }
    if (restarts) {
      put_request(end);
      announce(end);
    }
    thread.join();
    EXPECT_EQ(result_, restarts ? 0 : EINTR);
    if (restarts) expect_request();
    writer_ = {};
  }
}

TEST_F(PairWaitTest, AWrongMessageInMemoryEndsThePair) {
  using Change = std::function<void(device::PairMail::Place&)>;
  for (const Change& change :
       {Change([](auto& place) { place.bytes = 0xFFFFFFFF; }),
        Change([](auto& place) { place.bytes = device::PairMail::most_bytes + 1; }),
        Change([](auto& place) { place.bytes = 0; }), Change([](auto& place) { place.bytes = 4; }),
        Change([](auto& place) { ++place.bytes; })}) {
    HostileEnd end = make_end();
    put_request(end);
    change(bells_of_device(end).mail.ring[0]);
    announce(end);
    while (end.await()) {  // what it answered before it closed the pair
    }
    writer_ = {};
  }
  expect_service();
}

TEST(PairMail, KeepsItsOrderToTheChannel) {
  const auto mail = std::make_unique<device::PairMail>();
  PairMailWriter writer;
  PairMailReader reader;
  const std::array<std::byte, 3> message{std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_FALSE(writer.put(*mail, message, {})) << "nobody looks there";
  mail->open = 1;
  EXPECT_TRUE(writer.put(*mail, message, {}));
  writer.sent_by_channel();
  EXPECT_FALSE(writer.put(*mail, message, {})) << "it would be handled before that of the channel";
  EXPECT_EQ(reader.take(*mail)->size(), message.size());
  EXPECT_FALSE(reader.take(*mail));
  reader.handled_of_channel(*mail);
  EXPECT_TRUE(writer.put(*mail, message, {}));
}

TEST(PairMail, HasAsMuchRoomAsItSays) {
  const auto mail = std::make_unique<device::PairMail>();
  mail->open = 1;
  PairMailWriter writer;
  PairMailReader reader;
  const std::vector<std::byte> longest(device::PairMail::most_bytes - 4);
  const std::array<std::byte, 4> header{std::byte{9}};
  EXPECT_FALSE(writer.put(*mail, std::array<std::byte, 5>{}, longest));
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < device::PairMail::places; ++i) {
      EXPECT_TRUE(writer.put(*mail, header, longest));
    }
    EXPECT_FALSE(writer.put(*mail, header, {}));
    for (std::uint32_t i = 0; i < device::PairMail::places; ++i) {
      const auto taken = reader.take(*mail);
      ASSERT_TRUE(taken);
      EXPECT_EQ(taken->size(), device::PairMail::most_bytes);
      EXPECT_EQ(taken->front(), std::byte{9});
    }
    EXPECT_FALSE(reader.take(*mail));
  }
}

}  // namespace
}  // namespace weft::cm
