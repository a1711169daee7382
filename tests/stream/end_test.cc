// The end of streams, and how it is reported to both sides.
#include <poll.h>

#include <algorithm>
#include <future>
#include <thread>

#include "stream/sides.h"

namespace weft::stream {
namespace {

class End : public BothVariants {};
WEFT_BOTH_VARIANTS(End);

TEST_P(End, IsReturnedByEachCallBehindTheLastByte) {
  Sides sides(options());
  ASSERT_TRUE(sides.active.send(bytes_of("last words"), test_timeout).ok());
  sides.active.finish();
  EXPECT_EQ(text_of(receive_all(*sides.passive, 10)), "last words");
  std::vector<std::byte> more(1);
  EXPECT_TRUE(sides.passive->receive(more, test_timeout, {.peek = true}).end());
  EXPECT_TRUE(sides.passive->receive(more, test_timeout).end());
  for (int again = 0; again < 3; ++again) {
    EXPECT_TRUE(sides.passive->receive(more, test_timeout).end());
    EXPECT_TRUE(sides.passive->receive(more, test_timeout, {.peek = true}).end());
    EXPECT_TRUE(sides.passive->peek_receive().ok());
  }
  // An event loop is woken for it once.
  pollfd entry{sides.passive->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  // Also behind the end of the connection.
  EXPECT_TRUE(sides.active.close(test_timeout));
  EXPECT_TRUE(sides.passive->receive(more, test_timeout).end());
  sides.passive->close(test_timeout);
  EXPECT_EQ(sides.passive->receive(more, test_timeout).error_number, ECANCELED);
}

// As with close(2) behind accept(2): the peer has connected, and receives the end.
TEST_P(End, OfAStreamThatIsClosedAsSoonAsItIsAccepted) {
  Listener listener({test::host(), 0}, options());
  listener.listen();
  for (int i = 0; i < 50; ++i) {
    Stream active(options());
    active.start_connecting({test::host(), listener.port()});
    auto request = listener.next(test_timeout);
    ASSERT_TRUE(request);
    Stream passive = std::move(*request).accept({}, options());
    passive.close(test_timeout);
    ASSERT_TRUE(active.await_connected(test_timeout));
    std::vector<std::byte> more(1);
    const auto outcome = active.receive(more, test_timeout);
    ASSERT_TRUE(outcome.end()) << "in round " << i << ": " << outcome.error_number;
  }
}

// A layer that builds on streams shows the end where all bytes before it were taken.
TEST_P(End, IsDrainedOnceTheLastByteIsReceived) {
  struct Notes : Stream::Watcher {
    void changed(const Stream::Readiness& now) noexcept override { last = now; }
    Stream::Readiness last;
  } notes;
  Sides sides(options());
  ASSERT_TRUE(sides.active.send(bytes_of("last words"), test_timeout).ok());
  sides.active.finish();
  // More bytes than there are: returns at the end.
  std::vector<std::byte> all(20);
  ASSERT_TRUE(sides.passive->receive(all, test_timeout, {.peek = true, .wait_all = true}).ok());
  const auto before = sides.passive->watch(&notes);
  EXPECT_TRUE(before.ended);
  EXPECT_FALSE(before.drained);
  EXPECT_EQ(text_of(receive_all(*sides.passive, 9)), "last word");
  EXPECT_FALSE(sides.passive->readiness().drained);
  EXPECT_EQ(text_of(receive_all(*sides.passive, 1)), "s");
  EXPECT_TRUE(notes.last.drained) << "the watcher was not called";
  sides.passive->unwatch(&notes);
}

TEST_P(End, TheOtherDirectionGoesOn) {
  Sides sides(options());
  sides.active.finish();
  sides.active.finish();  // the second call has no effect
  std::vector<std::byte> more(1);
  EXPECT_TRUE(sides.passive->receive(more, test_timeout).end());
  const auto refused = sides.active.send(bytes_of("x"), test_timeout);
  EXPECT_EQ(refused.error_number, EPIPE);
  ASSERT_TRUE(sides.passive->send(bytes_of("still here"), test_timeout).ok());
  EXPECT_EQ(text_of(receive_all(sides.active, 10)), "still here");
  sides.passive->finish();
  EXPECT_TRUE(sides.active.receive(more, test_timeout).end());
}

// Of a call that wakes another one. The watcher is called behind the change.
TEST_P(End, StoppedReceivingIsAnEndBehindWhatHasArrived) {
  struct Notes : Stream::Watcher {
    void changed(const Stream::Readiness& now) noexcept override { last = now; }
    Stream::Readiness last;
  } notes;
  Sides sides(options());
  sides.active.watch(&notes);
  EXPECT_FALSE(notes.last.readable);
  auto waiting = std::async(std::launch::async, [&] {
    std::vector<std::byte> more(1);
    return sides.active.receive(more, test_timeout);
  });
  sides.active.stop_receiving();
  EXPECT_TRUE(waiting.get().end());
  EXPECT_TRUE(notes.last.readable);
  EXPECT_FALSE(notes.last.ended) << "the peer has sent no end";
  sides.active.unwatch(&notes);
  ASSERT_TRUE(sides.passive->send(bytes_of("late"), test_timeout).ok());
  ASSERT_TRUE(sides.passive->send(bytes_of("!"), test_timeout).ok());
  // The peer is not notified, and this side can send.
  ASSERT_TRUE(sides.active.send(bytes_of("heard"), test_timeout).ok());
  EXPECT_EQ(text_of(receive_all(*sides.passive, 5)), "heard");
}

// As shutdown(2), which does not wait for a peer that reads nothing.
TEST_P(End, FinishingEndsASendThatWaitsForRoom) {
  Options wanted = options();
  wanted.growth_bytes = 0;
  Sides sides(wanted);
  const auto bytes = test::pattern(1'000'000);
  auto sending =
      std::async(std::launch::async, [&] { return sides.active.send(bytes, test_timeout); });
  while (sides.active.statistics().bytes_sent == 0) std::this_thread::yield();
  sides.active.finish();
  const auto sent = sending.get();
  ASSERT_TRUE(sent.ok());
  EXPECT_LT(sent.bytes, bytes.size());
  EXPECT_EQ(sides.active.send(bytes, test_timeout).error_number, EPIPE);
  const auto got = receive_all(*sides.passive, bytes.size());
  ASSERT_EQ(got.size(), sent.bytes);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin()));
}

TEST_P(End, WhatWasSentBeforeClosingArrives) {
  for (const std::size_t size : {0U, 1U, 30'000U}) {
    Sides sides(options());
    const auto bytes = test::pattern(size);
    ASSERT_TRUE(sides.active.send(bytes, test_timeout).ok());
    EXPECT_TRUE(sides.active.close(test_timeout));
    EXPECT_EQ(sides.active.state(), State::closed);
    EXPECT_EQ(receive_all(*sides.passive, size), bytes);
    std::vector<std::byte> more(1);
    EXPECT_TRUE(sides.passive->receive(more, test_timeout).end());
    EXPECT_TRUE(sides.passive->receive(more, test_timeout).end());
  }
}

TEST_P(End, TheWriterGetsAnErrorAfterThePeerHasClosed) {
  Sides sides(options());
  sides.passive->close(test_timeout);
  const auto bytes = test::pattern(1'000'000);
  Transfer outcome;
  do {
    outcome = sides.active.send(bytes, test_timeout);
  } while (outcome.ok());
  EXPECT_EQ(outcome.status, TransferStatus::failed);
  EXPECT_EQ(outcome.error_number, ECONNRESET);
  EXPECT_EQ(sides.active.send(bytes, test_timeout).error_number, ECONNRESET);
  EXPECT_EQ(sides.active.peek_send().error_number, ECONNRESET);
}

TEST_P(End, AResetIsAnErrorBehindTheBytes) {
  Sides sides(options());
  ASSERT_TRUE(sides.active.send(bytes_of("all"), test_timeout).ok());
  EXPECT_EQ(text_of(receive_all(*sides.passive, 1)), "a");
  sides.active.abort();
  EXPECT_EQ(text_of(receive_all(*sides.passive, 2)), "ll");
  std::vector<std::byte> more(1);
  for (int i = 0; i < 2; ++i) {
    const auto outcome = sides.passive->receive(more, test_timeout);
    EXPECT_EQ(outcome.status, TransferStatus::failed);
    EXPECT_EQ(outcome.error_number, ECONNRESET);
  }
  EXPECT_EQ(sides.passive->state(), State::failed);
  EXPECT_EQ(sides.passive->error_number(), ECONNRESET);
}

TEST_P(End, DestroyingClosesInOrder) {
  Sides sides(options());
  {
    Stream short_lived(std::move(sides.active));
    ASSERT_TRUE(short_lived.send(bytes_of("bye"), test_timeout).ok());
  }
  EXPECT_EQ(text_of(receive_all(*sides.passive, 3)), "bye");
  std::vector<std::byte> more(1);
  EXPECT_TRUE(sides.passive->receive(more, test_timeout).end());
}

TEST_P(End, ClosingWakesWaitingCalls) {
  Sides sides(options());
  const auto bytes = test::pattern(10'000'000);
  auto sender = std::async(std::launch::async, [&] {
    while (true) {
      const auto outcome = sides.active.send(bytes);
      if (!outcome.ok()) return outcome;
    }
  });
  auto receiver = std::async(std::launch::async, [&] {
    std::vector<std::byte> some(10);
    return sides.active.receive(some);
  });
  while (sides.passive->bytes_available() < 32'768) std::this_thread::yield();
  sides.active.close(test_timeout);
  EXPECT_EQ(sender.get().error_number, ECANCELED);
  EXPECT_EQ(receiver.get().error_number, ECANCELED);
}

// The ring of the peer is full and its program does not read: closing must not wait for it.
TEST_P(End, ClosingDoesNotWaitForTheProgramAtTheOtherEnd) {
  Sides sides(options());
  const auto bytes = test::pattern(100'000);
  const auto sent = sides.active.send(bytes, Deadline::now());
  EXPECT_TRUE(sides.active.close(Deadline::never()));
  EXPECT_TRUE(std::ranges::equal(receive_all(*sides.passive, sent.bytes),
                                 std::span(bytes).first(sent.bytes)));
  std::vector<std::byte> more(1);
  EXPECT_TRUE(sides.passive->receive(more, test_timeout).end());
}

// How often it is called until the peer's device has everything depends on the peer.
TEST_P(End, ClosingWithoutAWaitLosesNothing) {
  for (const std::size_t size : {0U, 1U, 30'000U}) {
    Sides sides(options());
    const auto bytes = test::pattern(size);
    ASSERT_TRUE(sides.active.send(bytes, test_timeout).ok());
    while (!sides.active.close_if_sent()) std::this_thread::yield();
    EXPECT_EQ(sides.active.state(), State::closed);
    EXPECT_TRUE(sides.active.close(Deadline::now()));
    EXPECT_EQ(receive_all(*sides.passive, size), bytes);
    std::vector<std::byte> more(1);
    EXPECT_TRUE(sides.passive->receive(more, test_timeout).end());
  }
}

TEST_P(End, AllReceiversGetIt) {
  Sides sides(options());
  std::vector<std::future<Transfer>> receivers;
  for (int i = 0; i < 3; ++i) {
    receivers.push_back(std::async(std::launch::async, [&] {
      std::vector<std::byte> some(1);
      return sides.passive->receive(some, test_timeout);
    }));
  }
  sides.active.finish();
  int ends = 0;
  for (auto& receiver : receivers) ends += receiver.get().end();
  EXPECT_EQ(ends, 3);
}

}  // namespace
}  // namespace weft::stream
