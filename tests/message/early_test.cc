// Messages that are sent before the connection is established (Options::queue_while_connecting).
#include <gtest/gtest.h>

#include <cerrno>

#include "message/sides.h"

namespace weft::message::testing {
namespace {

Options queueing() {
  Options options;
  options.queue_while_connecting = true;
  return options;
}

// A listener whose limits may differ from those of the connecting loop.
struct Peer {
  explicit Peer(const Limits& limits = {}) : loop(limits) {
    listener.emplace(loop.listen({test::host(), 0}, [this](Request request) {
      connection = request.accept(log.handlers(), queueing());
      // The passive side is not established yet either.
      EXPECT_TRUE(connection.send("welcome"));
    }));
  }

  Log log;
  EventLoop loop;
  std::optional<Listener> listener;
  Connection connection;
};

TEST(EarlySends, ArriveBeforeLaterOnesAndInOrder) {
  Peer peer;
  EventLoop loop;
  Log log;
  auto handlers = log.handlers();
  handlers.established = [&](Connection& connection) {
    ++log.established;
    EXPECT_TRUE(connection.send("last", {.tag = 3}));
  };
  auto connection = loop.connect({test::host(), peer.listener->port()}, handlers, queueing());
  const auto text = pattern(20'000);  // long enough to be fetched by the peer
  EXPECT_TRUE(connection.writable());
  EXPECT_TRUE(connection.send("first", {.tag = 1, .confirm = true}));
  EXPECT_TRUE(connection.send("", {.tag = 4}));
  EXPECT_TRUE(connection.send(text, {.tag = 2}));
  EXPECT_EQ(connection.statistics().messages_waiting, 3U);
  until(loop, peer.loop, [&] { return peer.log.texts.size() == 4 && log.sent.size() == 4; });
  EXPECT_EQ(peer.log.texts, (std::vector<std::string>{"first", "", text_of(text), "last"}));
  until(loop, peer.loop, [&] { return log.texts.size() == 1 && log.delivered.size() == 1; });
  EXPECT_EQ(log.texts[0], "welcome");
  EXPECT_TRUE(log.failed.empty());
}

TEST(EarlySends, AreRefusedUnlessAskedFor) {
  Peer peer;
  EventLoop loop;
  auto connection = loop.connect({test::host(), peer.listener->port()}, {});
  EXPECT_FALSE(connection.writable());
  EXPECT_EQ(connection.send("too early").error_number(), ENOTCONN);
}

TEST(EarlySends, AreBoundedAndWritableFollows) {
  Limits limits;
  limits.send_queue_messages = 4;
  limits.send_queue_bytes = 1000;
  Peer peer;
  EventLoop loop(limits);
  Log log;
  auto connection = loop.connect({test::host(), peer.listener->port()}, log.handlers(), queueing());
  EXPECT_TRUE(connection.send(pattern(900)));
  EXPECT_EQ(connection.send(pattern(200)).error_number(), EAGAIN);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(connection.send("x"));
  EXPECT_FALSE(connection.writable());
  EXPECT_EQ(connection.send("x").error_number(), EAGAIN);
  until(loop, peer.loop, [&] { return log.writable == 1 && peer.log.texts.size() == 4; });
}

// The peer's limit is known only when the connection is established.
TEST(EarlySends, ThatThePeerDoesNotTakeFail) {
  Limits small;
  small.max_message_bytes = 10'000;
  Peer peer(small);
  EventLoop loop;
  Log log;
  auto connection = loop.connect({test::host(), peer.listener->port()}, log.handlers(), queueing());
  const auto longer = connection.send(pattern(10'001), {.tag = 7});
  const auto other = connection.send("short", {.tag = 8});
  ASSERT_TRUE(longer && other);
  until(loop, peer.loop, [&] { return log.failed.size() == 1 && log.sent.size() == 1; });
  EXPECT_EQ(log.failed[0], 7U);
  EXPECT_EQ(longer.error_number(), EMSGSIZE);
  EXPECT_EQ(other.status(), Status::sent);
  EXPECT_TRUE(log.endings.empty());
}

TEST(EarlySends, FailWithTheAttempt) {
  EventLoop loop;
  std::uint16_t port = 0;
  {
    Peer nobody;
    port = nobody.listener->port();
  }
  Log log;
  auto handlers = log.handlers();
  std::size_t failed_before_error = 0;
  handlers.error = [&](Connection&, const Error& error) {
    failed_before_error = log.failed.size();
    log.error_numbers.push_back(error.error_number());
  };
  auto connection = loop.connect({test::host(), port}, handlers, queueing());
  const auto one = connection.send("one", {.tag = 1});
  const auto two = connection.send("two", {.tag = 2});
  until(loop, [&] { return !log.error_numbers.empty(); });
  EXPECT_EQ(failed_before_error, 2U);
  EXPECT_EQ(log.failed, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(log.error_numbers[0], ECONNREFUSED);
  EXPECT_EQ(one.status(), Status::failed);
  EXPECT_EQ(two.error_number(), ECONNREFUSED);
  EXPECT_EQ(log.established, 0);
  EXPECT_TRUE(log.endings.empty());
}

TEST(EarlySends, FailWithTheLoop) {
  Sending message;
  {
    Peer peer;
    EventLoop loop;
    auto connection = loop.connect({test::host(), peer.listener->port()}, {}, queueing());
    message = connection.send("lost");
    EXPECT_EQ(message.status(), Status::waiting);
  }
  EXPECT_EQ(message.status(), Status::failed);
}

TEST(EarlySends, AreDeliveredBeforeAnOrderlyEnd) {
  Peer peer;
  EventLoop loop;
  Log log;
  auto connection = loop.connect({test::host(), peer.listener->port()}, log.handlers(), queueing());
  EXPECT_TRUE(connection.send("one"));
  EXPECT_TRUE(connection.send("two"));
  connection.disconnect_after_sending();
  EXPECT_EQ(connection.send("three").error_number(), ENOTCONN);
  until(loop, peer.loop, [&] { return peer.log.endings.size() == 1 && log.endings.size() == 1; });
  EXPECT_EQ(peer.log.texts, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(peer.log.endings[0].by, Ending::By::peer);
  EXPECT_EQ(log.endings[0].by, Ending::By::us);
}

// The name is looked up while the loop goes on, and an unknown one ends the attempt.
TEST(HostNames, AreLookedUpBesideTheLoop) {
  if (test::host() != "127.0.0.1") GTEST_SKIP() << "the device is not at the address of localhost";
  Peer peer;
  EventLoop loop;
  Log log;
  auto connection = loop.connect({"localhost", peer.listener->port()}, log.handlers(), queueing());
  EXPECT_TRUE(connection.send("by name"));
  until(loop, peer.loop, [&] { return peer.log.texts.size() == 1; });
  Log failed;
  Options patient;
  patient.connect_timeout = test_timeout;  // a name server may take its time
  loop.connect({"no-such-host.invalid", 7}, failed.handlers(), patient);
  EXPECT_TRUE(failed.errors.empty());
  until(loop, peer.loop, [&] { return failed.errors.size() == 1; });
  EXPECT_NE(failed.errors[0].find("\"no-such-host.invalid\" port 7: "), std::string::npos)
      << failed.errors[0];
  // Its connection ends, and the loop with it, while the name may still be looked up.
  loop.connect({"other-host.invalid", 7}, {}).disconnect();
}

// What an error says to programs survives until its callback.
TEST(EarlySends, ErrorsNameThePeerAsData) {
  EventLoop loop;
  std::vector<ErrorDetail> details;
  const Handlers handlers{
      .error = [&](Connection&, const Error& error) { details.push_back(error.detail()); }};
  Options patient;
  patient.connect_timeout = test_timeout;  // a name server may take its time
  loop.connect({"no-such-host.invalid", 7}, handlers, patient);
  until(loop, [&] { return details.size() == 1; });
  EXPECT_EQ(details[0].attribute, "host");
  EXPECT_EQ(details[0].peer, "no-such-host.invalid port 7");
  loop.connect({test::host(), 1}, handlers, patient);
  until(loop, [&] { return details.size() == 2; });
  EXPECT_EQ(details[1].object, "connection");
  EXPECT_EQ(details[1].peer, test::host() + " port 1");
}

// Also where the lookup has failed before connect() returns: it is never thrown.
TEST(EarlySends, ALookupThatFailsAtOnceIsReportedByTheLoop) {
  EventLoop loop;
  int errors = 0;
  const Handlers handlers{.error = [&](Connection&, const Error&) { ++errors; }};
  Options patient;
  patient.connect_timeout = test_timeout;
  constexpr int attempts = 300;
  for (int i = 0; i < attempts; ++i) {
    ASSERT_NO_THROW((void)loop.connect({"no host", 7}, handlers, patient));
  }
  until(loop, [&] { return errors == attempts; });
}

TEST(EarlySends, CanBeAwaited) {
  Peer peer;
  EventLoop loop;
  auto connection = loop.connect({test::host(), peer.listener->port()}, {}, queueing());
  std::optional<Status> status;
  loop.spawn([](Connection to, std::optional<Status>& into) -> Task<> {
    into = co_await to.send("awaited");
  }(connection, status));
  EXPECT_FALSE(status);
  until(loop, peer.loop, [&] { return status.has_value(); });
  EXPECT_EQ(*status, Status::sent);
}

}  // namespace
}  // namespace weft::message::testing
