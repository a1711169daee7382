// Coroutines of streams, in weft's own event loop and in Asio's.
#include "weft/stream/async.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "stream/sides.h"
#include "support/loops.h"

namespace weft::stream {
namespace {

template <typename Loop>
class AsyncStream : public test::InLoop<Loop> {
 protected:
  // Connects both sides with coroutines.
  void connect_sides(const Options& options = {}) {
    listener.emplace(Address{test::host(), 0}, options);
    listener->listen();
    this->run(
        [](auto& self) -> Task<> {
          self.passive.emplace(co_await self.async.accept(*self.listener, test_timeout));
        }(*this),
        [](auto& self, Options wanted) -> Task<> {
          const Address peer(test::host(), self.listener->port());
          self.active.emplace(co_await self.async.connect(peer, test_timeout, wanted));
        }(*this, options));
  }

  Async async{this->loop.executor()};
  std::optional<Listener> listener;
  std::optional<Stream> active;
  std::optional<Stream> passive;
};

TYPED_TEST_SUITE(AsyncStream, test::Loops, test::LoopNames);

// Rings that are much smaller than what is sent.
Options small_rings() {
  Options options;
  options.send_buffer_bytes = 4096;
  options.receive_buffer_bytes = 4096;
  return options;
}

Task<> send_and_finish(Async async, Stream& stream, std::span<const std::byte> bytes) {
  const Transfer sent = co_await async.send(stream, bytes, test_timeout);
  EXPECT_TRUE(sent.ok());
  EXPECT_EQ(sent.bytes, bytes.size());
  stream.finish();
}

Task<> echo_until_the_end(Async async, Stream& stream) {
  std::vector<std::byte> buffer(1000);
  while (true) {
    const Transfer got = co_await async.receive(stream, buffer, test_timeout);
    if (!got.ok()) {
      EXPECT_TRUE(got.end());
      break;
    }
    const auto bytes = std::span(buffer).first(got.bytes);
    EXPECT_EQ((co_await async.send(stream, bytes, test_timeout)).bytes, got.bytes);
  }
  EXPECT_TRUE(co_await async.close(stream, test_timeout));
}

Task<> receive_to_the_end(Async async, Stream& stream, std::vector<std::byte>& into) {
  const Deadline deadline = test_timeout;
  const Transfer got = co_await async.receive(stream, into, deadline, {.wait_all = true});
  EXPECT_TRUE(got.ok());
  EXPECT_FALSE(deadline.passed()) << "the end has ended the wait";
  into.resize(got.bytes);
  std::vector<std::byte> more(1);
  EXPECT_TRUE((co_await async.receive(stream, more, test_timeout)).end());
}

TYPED_TEST(AsyncStream, BothEndsOnOneThread) {
  this->connect_sides(small_rings());
  const auto bytes = test::pattern(300'001);
  std::vector<std::byte> got(bytes.size() + 1);
  this->run(echo_until_the_end(this->async, *this->passive),
            send_and_finish(this->async, *this->active, bytes),
            receive_to_the_end(this->async, *this->active, got));
  EXPECT_TRUE(got == bytes);
  EXPECT_EQ(this->passive->state(), State::closed);
}

// The second one begins when the first one is done, although both wait for room all the time.
TYPED_TEST(AsyncStream, SendersTakeTurns) {
  this->connect_sides(small_rings());
  const std::vector<std::byte> first(50'000, std::byte{1});
  const std::vector<std::byte> second(50'000, std::byte{2});
  const auto send = [](Async waits, Stream& stream, auto& bytes) -> Task<> {
    const Transfer sent = co_await waits.send(stream, bytes, test_timeout);
    EXPECT_EQ(sent.bytes, bytes.size());
  };
  std::vector<std::byte> got(100'000);
  this->run(send(this->async, *this->active, first), send(this->async, *this->active, second),
            [](Async waits, Stream& stream, auto& into) -> Task<> {
              const auto all =
                  co_await waits.receive(stream, into, test_timeout, {.wait_all = true});
              EXPECT_EQ(all.bytes, into.size());
            }(this->async, *this->passive, got));
  EXPECT_EQ(std::ranges::count(std::span(got).first(50'000), std::byte{1}), 50'000);
  EXPECT_EQ(std::ranges::count(std::span(got).last(50'000), std::byte{2}), 50'000);
}

TYPED_TEST(AsyncStream, ViewsNeedNoCopy) {
  this->connect_sides();
  this->run(
      [](Async waits, Stream& stream) -> Task<> {
        const View view = co_await waits.view(stream, test_timeout);
        EXPECT_EQ(text_of(view.bytes), "hello");
        stream.consume(view.bytes.size());
        const View last = co_await waits.view(stream, test_timeout);
        EXPECT_TRUE(last.transfer.end());
      }(this->async, *this->passive),
      send_and_finish(this->async, *this->active, bytes_of("hello")));
}

Task<> end_of(Task<Stream> attempt, int& error) {
  try {
    const Stream made = co_await attempt;
    error = 0;
  } catch (const Error& failed) {
    error = failed.error_number();
  }
}

TYPED_TEST(AsyncStream, EveryWaitHasADeadline) {
  this->connect_sides(small_rings());
  Listener silent({test::host(), 0});
  silent.listen();
  this->run([](auto& self, Listener& nobody) -> Task<> {
    const Async waits = self.async;
    std::vector<std::byte> buffer(10);
    Transfer got = co_await waits.receive(*self.active, buffer, 1ms);
    EXPECT_TRUE(got.would_block());
    got = co_await waits.receive(*self.active, buffer, Deadline::now());
    EXPECT_TRUE(got.would_block());
    const View view = co_await waits.view(*self.active, 1ms);
    EXPECT_TRUE(view.transfer.would_block());
    EXPECT_FALSE(co_await waits.next(*self.listener, 1ms));
    int error = 0;
    co_await end_of(waits.accept(*self.listener, 1ms), error);
    EXPECT_EQ(error, ETIMEDOUT);
    const Address address(test::host(), nobody.port());
    co_await end_of(waits.connect(address, 5ms), error);
    EXPECT_EQ(error, ETIMEDOUT);
    // What did fit is sent, and counted.
    const auto bytes = test::pattern(1'000'000);
    const Transfer part = co_await waits.send(*self.active, bytes, 5ms);
    EXPECT_TRUE(part.ok());
    EXPECT_LT(part.bytes, bytes.size());
    const Transfer none = co_await waits.send(*self.active, bytes, 1ms);
    EXPECT_TRUE(none.would_block());
    std::vector<std::byte> arrived(part.bytes);
    got = co_await waits.receive(*self.passive, arrived, test_timeout, {.wait_all = true});
    EXPECT_EQ(got.bytes, part.bytes);
    EXPECT_TRUE(std::ranges::equal(arrived, std::span(bytes).first(part.bytes)));
    got = co_await waits.receive(*self.passive, buffer, 1ms);
    EXPECT_TRUE(got.would_block());
  }(*this, silent));
}

TYPED_TEST(AsyncStream, EveryWaitCanBeStoppedFromAnyThread) {
  this->connect_sides();
  Listener silent({test::host(), 0});
  silent.listen();
  std::stop_source source;
  int ended = 0;
  const auto never = Deadline::never();
  const auto stop = source.get_token();
  this->loop.start([](auto& self, Deadline wait, std::stop_token token, int& count) -> Task<> {
    std::vector<std::byte> buffer(10);
    const Transfer got = co_await self.async.receive(*self.active, buffer, wait, {}, token);
    EXPECT_TRUE(got.would_block());
    ++count;
  }(*this, never, stop, ended));
  this->loop.start([](auto& self, Deadline wait, std::stop_token token, int& count) -> Task<> {
    int error = 0;
    co_await end_of(self.async.accept(*self.listener, wait, {}, token), error);
    EXPECT_EQ(error, ECANCELED);
    ++count;
  }(*this, never, stop, ended));
  this->loop.start(
      [](auto& self, Address peer, Deadline wait, std::stop_token token, int& count) -> Task<> {
        int error = 0;
        co_await end_of(self.async.connect(peer, wait, {}, {}, token), error);
        EXPECT_EQ(error, ECANCELED);
        ++count;
      }(*this, Address(test::host(), silent.port()), never, stop, ended));
  // Started after the others, so the others are waiting when it has ended.
  this->run([](auto& self) -> Task<> {
    EXPECT_FALSE(co_await self.async.next(*self.listener, 1ms));
  }(*this));
  EXPECT_EQ(ended, 0);
  std::thread other([&] { source.request_stop(); });
  while (ended < 3) this->loop.step(test_timeout);
  other.join();
  // The stream goes on as before.
  ASSERT_TRUE(this->passive->send(bytes_of("later"), test_timeout).ok());
  EXPECT_EQ(text_of(receive_all(*this->active, 5)), "later");
}

TYPED_TEST(AsyncStream, ClosingAStreamEndsItsWaits) {
  this->connect_sides();
  Transfer got;
  this->run(
      [](Async waits, Stream& stream, Transfer& outcome) -> Task<> {
        std::vector<std::byte> buffer(10);
        outcome = co_await waits.receive(stream, buffer, test_timeout);
      }(this->async, *this->active, got),
      [](Stream& stream) -> Task<> {
        stream.close(test_timeout);
        co_return;
      }(*this->active));
  EXPECT_EQ(got.status, TransferStatus::failed);
  EXPECT_EQ(got.error_number, ECANCELED);
}

// The task is destroyed where it waits, with the loop; the stream can be used afterwards.
TYPED_TEST(AsyncStream, ADestroyedTaskTakesNothing) {
  this->connect_sides();
  {
    test::OwnLoop other;
    other.start([](Executor& executor, Stream& stream) -> Task<> {
      std::vector<std::byte> buffer(10);
      static_cast<void>(co_await Async(executor).receive(stream, buffer, Deadline::never()));
      ADD_FAILURE() << "the loop ends first";
    }(other.executor(), *this->active));
    other.step(Deadline::now());
  }
  ASSERT_TRUE(this->passive->send(bytes_of("all of it"), test_timeout).ok());
  EXPECT_EQ(text_of(receive_all(*this->active, 9)), "all of it");
}

TYPED_TEST(AsyncStream, RefusalsAndLostPeersAreReported) {
  this->connect_sides();
  this->passive.reset();
  this->run([](auto& self) -> Task<> {
    std::vector<std::byte> buffer(10);
    const Transfer end = co_await self.async.receive(*self.active, buffer, test_timeout);
    EXPECT_TRUE(end.end());
    int error = 0;
    const std::uint16_t port = self.listener->port();
    self.listener.reset();
    co_await end_of(self.async.connect(Address(test::host(), port), test_timeout), error);
    EXPECT_EQ(error, ECONNREFUSED);
    bool refused = false;
    try {
      co_await self.async.receive(*self.active, buffer, test_timeout, {.peek = true});
    } catch (const Error& invalid) {
      refused = invalid.error_number() == EINVAL;
    }
    EXPECT_TRUE(refused);
  }(*this));
}

TYPED_TEST(AsyncStream, HostNamesAreLookedUp) {
  if (test::host() != "127.0.0.1") GTEST_SKIP() << "the device is not at the address of localhost";
  this->connect_sides();
  this->run(
      [](auto& self) -> Task<> {
        const Stream peer = co_await self.async.accept(*self.listener, test_timeout);
      }(*this),
      [](auto& self) -> Task<> {
        const Address peer("localhost", self.listener->port());
        const Stream stream = co_await self.async.connect(peer, test_timeout);
        EXPECT_EQ(stream.state(), State::connected);
        int error = 0;
        co_await end_of(self.async.connect(Address("no-such-host.invalid", 1), test_timeout),
                        error);
        EXPECT_EQ(error, ENXIO);
      }(*this));
}

// Also without a coroutine: the call that begins to connect does not wait for a name server.
TEST(HostNames, AreLookedUpBesideTheProgram) {
  if (test::host() != "127.0.0.1") GTEST_SKIP() << "the device is not at the address of localhost";
  Listener listener({test::host(), 0});
  listener.listen();
  Stream active;
  active.start_connecting({"localhost", listener.port()});
  EXPECT_EQ(active.state(), State::connecting);
  const Stream passive = listener.accept(test_timeout);
  EXPECT_TRUE(active.await_connected(test_timeout));
  Stream lost;
  lost.start_connecting({"no-such-host.invalid", 7});
  try {
    static_cast<void>(lost.await_connected(test_timeout));
    ADD_FAILURE() << "no host has that name";
  } catch (const Error& error) {
    EXPECT_EQ(error.detail().peer, "no-such-host.invalid port 7");
    const std::string text = error.what();
    EXPECT_NE(text.find("numeric address"), std::string::npos);
    const std::string cause = error.code().message();
    EXPECT_EQ(text.find(cause), text.rfind(cause)) << "the cause is there once: " << text;
  }
  // May end while the name is looked up.
  Stream abandoned;
  abandoned.start_connecting({"other-host.invalid", 7});
}

// Also where the lookup has failed before start_connecting() returns: that never throws.
TEST(HostNames, ALookupThatFailsAtOnceIsReportedByTheWait) {
  for (int i = 0; i < 300; ++i) {
    Stream lost;
    ASSERT_NO_THROW(lost.start_connecting({"no host", 7}));
    EXPECT_THROW(static_cast<void>(lost.await_connected(test_timeout)), Error);
  }
}

// As data, too: a program need not read the sentence.
TEST(Refusals, NameThePeer) {
  Stream refused;
  try {
    refused.connect({test::host(), 1}, test_timeout);
    ADD_FAILURE() << "no program listens at port 1";
  } catch (const Rejected& error) {
    EXPECT_EQ(error.detail().object, "stream");
    EXPECT_EQ(error.detail().peer, test::host() + ":1");
  }
}

}  // namespace
}  // namespace weft::stream
