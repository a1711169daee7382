// The beginning and the end of connections, and what is reported to both sides.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "message/link.h"
#include "message/sides.h"
#include "support/host.h"
#include "support/needs.h"

namespace weft::message::testing {
namespace {

// --- Attempts that fail --------------------------------------------------------------------

struct Attempt {
  explicit Attempt(EventLoop& loop, std::uint16_t port, const Options& options = {},
                   const std::string& host = test::host())
      : connection(loop.connect({host, port}, log.handlers(), options)) {
    until(loop, [&] { return log.established > 0 || !log.errors.empty(); });
    while (loop.step(10ms) > 0) continue;
  }
  Log log;
  Connection connection;
};

TEST(Connecting, WithoutARequestHandlerIsRejected) {
  EventLoop loop;
  auto listener = loop.listen({test::host(), 0}, nullptr);
  const Attempt attempt(loop, listener.port());
  EXPECT_EQ(attempt.log.rejected, RejectReason::no_handler);
  EXPECT_EQ(attempt.log.error_numbers, std::vector<int>{ECONNREFUSED});
  EXPECT_EQ(attempt.log.established, 0);
  EXPECT_TRUE(attempt.log.endings.empty());
  EXPECT_EQ(attempt.connection.state(), State::ended);
  EXPECT_EQ(loop.connections(), 0U);
  EXPECT_EQ(listener.turned_away(), 1U);
}

TEST(Connecting, ARefusalCarriesWhatTheApplicationSays) {
  EventLoop loop;
  std::string asked;
  auto listener = loop.listen({test::host(), 0}, [&](Request request) {
    asked = text_of(request.private_data());
    request.reject(bytes_of("not today"));
    EXPECT_THROW(request.reject(), std::logic_error);
    EXPECT_THROW(request.accept({}), std::logic_error);
  });
  Options options;
  options.private_data = bytes_of("may I?");
  const Attempt attempt(loop, listener.port(), options);
  EXPECT_EQ(asked, "may I?");
  EXPECT_EQ(attempt.log.rejected, RejectReason::refused);
  EXPECT_EQ(text_of(attempt.log.rejection_data), "not today");
}

TEST(Connecting, AnUndecidedRequestIsRefused) {
  EventLoop loop;
  auto listener = loop.listen({test::host(), 0}, [](Request) {});
  EXPECT_EQ(Attempt(loop, listener.port()).log.rejected, RejectReason::refused);
}

TEST(Connecting, NobodyListens) {
  EventLoop loop;
  const std::uint16_t port = loop.listen({test::host(), 0}, nullptr).port();
  const Attempt attempt(loop, port);
  EXPECT_EQ(attempt.log.rejected, RejectReason::nobody_listens);
}

// The text of an error becomes a part of another error, which has the same cause.
TEST(Connecting, TheCauseOfAnErrorIsNamedOnce) {
  const Error error(ENOMEM, "cannot create a queue pair");
  EXPECT_EQ(detail::without_cause(error), "cannot create a queue pair");
  EXPECT_STREQ(Error(ENOMEM, detail::without_cause(error)).what(), error.what());
}

TEST(Connecting, AnUnreachableHostIsAnErrorWithinABound) {
  EventLoop loop;
  Options options;
  options.connect_timeout = 200ms;
  // An address of the discard prefix (RFC 6666). Without IPv6 the attempt fails at once.
  try {
    const Attempt attempt(loop, 7174, options, "100::1");
    EXPECT_EQ(attempt.log.errors.size(), 1U);
  } catch (const Error& error) {
    EXPECT_NE(error.error_number(), 0);
  }
}

TEST(Connecting, APeerThatNeverAnswersIsAnErrorWithinABound) {
  if (!test::own_device()) GTEST_SKIP() << "the embedded device connects by TCP";
  // A TCP listener that accepts connections and sends nothing.
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(listen(fd, 5), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  EventLoop loop;
  Options options;
  options.connect_timeout = 100ms;
  const Attempt attempt(loop, ntohs(address.sin_port), options);
  EXPECT_EQ(attempt.log.error_numbers, std::vector<int>{ETIMEDOUT});
  close(fd);
}

TEST(Connecting, TooMuchPrivateDataIsRefusedWithTheLimit) {
  EventLoop loop;
  const std::vector<std::byte> much(max_private_data_bytes + 1);
  Options options;
  options.private_data = much;
  try {
    loop.connect({test::host(), 1}, {}, options);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
    EXPECT_NE(std::string(error.what()).find("32"), std::string::npos);
  }
  EXPECT_EQ(loop.connections(), 0U);
}

TEST(Connecting, BeyondMaxConnectionsTheReasonIsStated) {
  Limits limits;
  limits.max_connections = 2;
  EventLoop loop(limits);
  std::vector<Connection> accepted;
  auto listener = loop.listen({test::host(), 0},
                              [&](Request request) { accepted.push_back(request.accept({})); });
  Attempt first(loop, listener.port());
  Attempt second(loop, listener.port());
  EXPECT_EQ(listener.connections(), 2U);
  const Attempt third(loop, listener.port());
  EXPECT_EQ(third.log.rejected, RejectReason::too_many_connections);
  EXPECT_NE(third.log.errors.at(0).find("2 connections"), std::string::npos);
  // A connection that ends makes room for another one.
  first.connection.disconnect();
  until(loop, [&] { return listener.connections() == 1; });
  EXPECT_EQ(Attempt(loop, listener.port()).log.established, 1);
}

TEST(Connecting, AnotherProtocolIsRejectedWithAReason) {
  EventLoop loop;
  auto listener = loop.listen({test::host(), 0}, [](Request request) { request.accept({}); });
  const auto reject_reason = [&](std::string_view private_data) {
    verbs::EventChannel events;
    verbs::Id id(events);
    const auto next = [&] {
      std::vector<verbs::ConnectionEvent> got;
      until(loop, [&] {
        if (auto event = events.next(1ms)) got.push_back(std::move(*event));
        return !got.empty() || loop.step() > 100'000;
      });
      return std::move(got.at(0));
    };
    id.resolve_address({test::host(), listener.port()}, 10s);
    EXPECT_EQ(next().type(), RDMA_CM_EVENT_ADDR_RESOLVED);
    id.resolve_route(10s);
    EXPECT_EQ(next().type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
    const auto context = id.context();
    const auto domain = context.create_domain();
    const auto queue = context.create_completion_queue(4);
    const auto queue_pair = id.create_queue_pair(domain, queue, queue,
                                                 {.max_send_wr = 1,
                                                  .max_recv_wr = 1,
                                                  .max_send_sge = 1,
                                                  .max_recv_sge = 1,
                                                  .max_inline_data = 0});
    id.connect({.private_data = bytes_of(private_data)});
    const auto event = next();
    EXPECT_EQ(event.type(), RDMA_CM_EVENT_REJECTED);
    const auto why = event.private_data();
    EXPECT_GE(why.size(), 6U);
    return why.size() < 6 ? 0 : static_cast<int>(why[5]);
  };
  EXPECT_EQ(reject_reason("WEFM\x02 something of a later version"), 1);
  EXPECT_EQ(reject_reason("GET / HTTP/1.1"), 2);
  EXPECT_EQ(reject_reason(""), 2);
  EXPECT_EQ(listener.turned_away(), 3U);
}

// --- Accepting and rejecting ---------------------------------------------------------------------

TEST(Connecting, ARequestMayBeDecidedOnLater) {
  EventLoop loop;
  std::vector<Request> requests;
  auto listener = loop.listen({test::host(), 0},
                              [&](Request request) { requests.push_back(std::move(request)); });
  Log a;
  Log b;
  Log c;
  loop.connect({test::host(), listener.port()}, a.handlers());
  loop.connect({test::host(), listener.port()}, c.handlers());
  until(loop, [&] { return requests.size() == 2; });
  EXPECT_EQ(listener.connections(), 2U);
  EXPECT_EQ(a.established, 0);
  requests[1].reject();
  requests[0].accept(b.handlers());
  until(loop, [&] {
    return a.established + c.established == 1 && b.established == 1 &&
           a.errors.size() + c.errors.size() == 1;
  });
}

TEST(Connecting, PrivateDataGoesBothWays) {
  EventLoop loop;
  Options here;
  here.private_data = bytes_of("from here");
  Options there;
  there.private_data = bytes_of("");
  Connection accepted;
  auto listener =
      loop.listen({test::host(), 0}, [&](Request request) { accepted = request.accept({}, here); });
  there.private_data = bytes_of("from there");
  Attempt attempt(loop, listener.port(), there);
  EXPECT_EQ(text_of(attempt.connection.peer_private_data()), "from here");
  EXPECT_EQ(text_of(accepted.peer_private_data()), "from there");
}

TEST(Connecting, SixtyFourClientsOnOneListener) {
  EventLoop loop;
  std::vector<std::string> seen;
  std::optional<Listener> listener(loop.listen({test::host(), 0}, [&](Request request) {
    request.accept({.message = [&](Connection& from, Received& got) {
      seen.push_back(text_of(got.bytes()));
      from.send(got.bytes());
    }});
  }));
  std::vector<Log> clients(64);
  for (Log& client : clients) {
    loop.connect({test::host(), listener->port()}, client.handlers());
  }
  until(loop, [&] {
    return std::ranges::all_of(clients, [](const Log& client) { return client.established == 1; });
  });
  EXPECT_EQ(listener->connections(), 64U);
  const std::uint16_t port = listener->port();
  listener.reset();
  for (std::size_t i = 0; i < clients.size(); ++i) {
    clients[i].connection.send(std::to_string(i), {.confirm = true});
  }
  until(loop, [&] {
    return std::ranges::all_of(clients, [](const Log& client) {
      return client.texts.size() == 1 && client.delivered.size() == 1;
    });
  });
  EXPECT_EQ(seen.size(), 64U);
  EXPECT_EQ(Attempt(loop, port).log.rejected, RejectReason::nobody_listens);
}

TEST(Connecting, SeveralLoopsShareAListener) {
  EventLoop front;
  EventLoop back;
  Log b;
  std::thread::id answered_by;
  auto listener = front.listen({test::host(), 0}, [&](Request request) {
    Handlers handlers = b.handlers();
    handlers.message = [&](Connection& from, Received& got) {
      answered_by = std::this_thread::get_id();
      from.send(got.bytes());
    };
    request.accept_on(back, std::move(handlers));
  });
  std::jthread worker([&] { back.run(); });
  Log a;
  front.connect({test::host(), listener.port()}, a.handlers());
  until(front, [&] { return a.established == 1; });
  a.connection.send("who are you?");
  until(front, [&] { return a.texts.size() == 1; });
  EXPECT_EQ(back.call([&] { return back.connections(); }), 1U);
  // Behind the call, for a checker of threads: it does not see that a message orders two threads.
  EXPECT_EQ(answered_by, worker.get_id());
  EXPECT_EQ(front.connections(), 1U);
  back.stop();
}

// The loop does not know the connection yet.
TEST(Connecting, ALoopThatGoesBeforeItHasAcceptedEndsTheConnection) {
  EventLoop front;
  std::optional<EventLoop> back(std::in_place);
  std::optional<Connection> given;
  auto listener = front.listen({test::host(), 0},
                               [&](Request request) { given = request.accept_on(*back, {}); });
  Log a;
  front.connect({test::host(), listener.port()}, a.handlers());
  until(front, [&] { return given.has_value(); });
  back.reset();
  EXPECT_EQ(given->state(), State::ended);
  given->disconnect();
}

// The loop finds both when it runs for the first time.
TEST(Connecting, AConnectionMayEndBeforeItsLoopHasAcceptedIt) {
  EventLoop front;
  EventLoop back;
  std::optional<Connection> given;
  auto listener = front.listen({test::host(), 0},
                               [&](Request request) { given = request.accept_on(back, {}); });
  Log a;
  front.connect({test::host(), listener.port()}, a.handlers());
  until(front, [&] { return given.has_value(); });
  given->disconnect();
  until(back, [&] { return given->state() == State::ended; });
  until(front, [&] { return a.rejected || !a.errors.empty(); });
}

// --- Ending --------------------------------------------------------------------------------------

TEST(Ending, DisconnectFailsWhatIsNotSentOnceEach) {
  Limits limits;
  limits.credits = 1;
  EventLoop sending(limits);
  EventLoop receiving(limits);
  Log from;
  Log to;
  auto listener =
      receiving.listen({test::host(), 0}, [&](Request request) { request.accept(to.handlers()); });
  sending.connect({test::host(), listener.port()}, from.handlers());
  until(sending, receiving, [&] { return from.established && to.established; });
  from.connection.send("one", {.tag = 1000});
  until(sending, [&] { return from.sent.size() == 1; });
  std::vector<Sending> messages;
  for (std::uint64_t i = 0; i < 100; ++i) {
    messages.push_back(from.connection.send(pattern(i * 300), {.tag = i}));
    EXPECT_EQ(messages.back().status(), Status::waiting);
  }
  from.connection.disconnect();
  EXPECT_TRUE(from.failed.empty()) << "callbacks come from the loop";
  EXPECT_EQ(from.connection.send("late").error_number(), ENOTCONN);
  until(sending, [&] { return from.endings.size() == 1; });
  ASSERT_EQ(from.failed.size(), 100U);
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(from.failed[i], i);
    EXPECT_EQ(messages[i].status(), Status::failed);
    EXPECT_EQ(messages[i].error_number(), ECONNABORTED);
  }
  EXPECT_EQ(from.endings[0].by, Ending::By::us);
  EXPECT_EQ(from.connection.state(), State::ended);
  EXPECT_EQ(sending.connections(), 0U);
  until(receiving, [&] { return to.endings.size() == 1; });
  EXPECT_EQ(to.endings[0].by, Ending::By::cut);
  EXPECT_EQ(to.texts, std::vector<std::string>{"one"});
  from.connection.disconnect();
  while (sending.step(10ms) > 0) continue;
  EXPECT_EQ(from.endings.size(), 1U);
}

TEST(Ending, AfterSendingEverythingHasArrived) {
  for (const bool confirm : {false, true}) {
    Limits limits;
    limits.credits = 2;
    Sides sides(limits);
    for (std::uint64_t i = 0; i < 100; ++i) {
      sides.a.send(pattern(i * 500), {.tag = i, .confirm = confirm});
    }
    sides.a.disconnect_after_sending();
    EXPECT_EQ(sides.a.state(), State::disconnecting);
    EXPECT_EQ(sides.a.send("late").error_number(), ENOTCONN);
    sides.wait([&] { return sides.a_log.endings.size() == 1 && sides.b_log.endings.size() == 1; });
    EXPECT_EQ(sides.a_log.sent.size(), 100U);
    EXPECT_EQ(sides.a_log.delivered.size(), confirm ? 100U : 0U);
    EXPECT_TRUE(sides.a_log.failed.empty());
    EXPECT_EQ(sides.b_log.texts.size(), 100U);
    EXPECT_EQ(sides.a_log.endings[0].by, Ending::By::us);
    EXPECT_EQ(sides.b_log.endings[0].by, Ending::By::peer);
    EXPECT_TRUE(sides.a_log.errors.empty());
    EXPECT_TRUE(sides.b_log.errors.empty());
  }
}

TEST(Ending, TheSideThatAcceptedMayEndIt) {
  Sides sides;
  sides.b.send("bye");
  sides.b.disconnect_after_sending();
  sides.wait([&] { return sides.a_log.endings.size() == 1 && sides.b_log.endings.size() == 1; });
  EXPECT_EQ(sides.a_log.texts, std::vector<std::string>{"bye"});
  EXPECT_EQ(sides.a_log.endings[0].by, Ending::By::peer);
}

TEST(Ending, WhatIsNotConfirmedHasFailedAfterItWasSent) {
  Sides sides({}, {}, [](Handlers& handlers) {
    handlers.message = [](Connection& self, Received&) { self.disconnect(); };
  });
  sides.a.send("the last straw", {.tag = 5, .confirm = true});
  sides.wait([&] { return sides.a_log.endings.size() == 1; });
  EXPECT_EQ(sides.a_log.sent, std::vector<std::uint64_t>{5});
  EXPECT_EQ(sides.a_log.failed, std::vector<std::uint64_t>{5});
  EXPECT_TRUE(sides.a_log.delivered.empty());
}

TEST(Ending, WhatHasComeCanBeTakenAfterwards) {
  Sides sides({}, {}, [](Handlers& handlers) { handlers.message = nullptr; });
  sides.a.send("short");
  sides.a.send(std::string(50'000, 'x'));
  sides.wait([&] { return sides.a_log.sent.size() == 2; });
  sides.a.disconnect();
  sides.wait([&] { return sides.b_log.endings.size() == 1; });
  EXPECT_EQ(text_of(sides.b.try_receive()->bytes()), "short");
  EXPECT_EQ(sides.b.try_receive()->size_bytes(), 50'000U);
  EXPECT_FALSE(sides.b.try_receive());
}

TEST(Ending, DisconnectBeforeThereIsAConnection) {
  EventLoop loop;
  auto listener = loop.listen({test::host(), 0}, nullptr);
  Log log;
  auto connection = loop.connect({test::host(), listener.port()}, log.handlers());
  connection.disconnect();
  until(loop, [&] { return log.errors.size() == 1; });
  EXPECT_EQ(log.error_numbers[0], ECANCELED);
  EXPECT_TRUE(log.endings.empty());
}

// --- Destruction and exceptions, in every callback -----------------------------------------------

using Break = std::function<void(Sides&)>;

// Runs `what` in each kind of callback, of each side.
void in_every_callback(const Break& what) {
  using Member = std::function<void(Handlers&, std::function<void()>)>;
  const std::vector<Member> places{
      [](Handlers& h, auto f) { h.message = [f](Connection&, Received&) { f(); }; },
      [](Handlers& h, auto f) { h.sent = [f](Connection&, const Sending&) { f(); }; },
      [](Handlers& h, auto f) { h.delivered = [f](Connection&, const Sending&) { f(); }; },
      [](Handlers& h, auto f) { h.failed = [f](Connection&, const Sending&) { f(); }; },
      [](Handlers& h, auto f) { h.writable = [f](Connection&) { f(); }; },
      [](Handlers& h, auto f) { h.disconnected = [f](Connection&, const Ending&) { f(); }; },
  };
  for (std::size_t place = 0; place < places.size(); ++place) {
    for (const bool on_a : {true, false}) {
      SCOPED_TRACE(place * 2 + on_a);
      Limits limits;
      limits.credits = 2;
      limits.send_queue_messages = 10;
      Sides* all = nullptr;
      bool done = false;
      const auto change = [&](Handlers& handlers) {
        places[place](handlers, [&] {
          if (std::exchange(done, true)) return;
          what(*all);
        });
      };
      Sides sides(limits, on_a ? change : std::function<void(Handlers&)>{},
                  on_a ? std::function<void(Handlers&)>{} : change);
      all = &sides;
      for (Connection* connection : {&sides.a, &sides.b}) {
        while (connection->send(pattern(20'000), {.confirm = true})) continue;
      }
      // These two are called at an end only; the others are called without one.
      if (place == 3 || place == 5) sides.a.disconnect();
      const Deadline deadline = test_timeout;
      while (sides.loop && !done && !deadline.passed()) {
        try {
          sides.loop->step(100ms);
        } catch (const int&) {
        }
      }
      EXPECT_TRUE(done) << "the callback did not come";
      if (sides.loop) {
        sides.a.disconnect();
        sides.b.disconnect();
        while (sides.loop->connections() > 0 && !deadline.passed()) {
          try {
            sides.loop->step(100ms);
          } catch (const int&) {
          }
        }
        EXPECT_EQ(sides.loop->connections(), 0U);
      }
      EXPECT_EQ(sides.a.state(), State::ended);
      EXPECT_EQ(sides.b.state(), State::ended);
    }
  }
}

TEST(Ending, DisconnectInAnyCallback) {
  in_every_callback([](Sides& sides) {
    sides.a.disconnect();
    sides.b.disconnect();
  });
}

TEST(Ending, DisconnectAfterSendingInAnyCallback) {
  in_every_callback([](Sides& sides) {
    sides.a.disconnect_after_sending();
    sides.b.disconnect_after_sending();
  });
}

TEST(Ending, HandlesAndListenerDestroyedInAnyCallback) {
  in_every_callback([](Sides& sides) {
    sides.listener.reset();
    sides.a.disconnect();
    sides.a.set_handlers({});
    sides.b.set_handlers({});
  });
}

TEST(Ending, TheLoopDestroyedInAnyCallback) {
  in_every_callback([](Sides& sides) { sides.loop.reset(); });
}

TEST(Ending, AnExceptionInAnyCallbackComesOutOfStep) {
  in_every_callback([](Sides&) { throw 42; });
}

TEST(Ending, TheLoopMayGoFirst) {
  Sides sides;
  const Buffer buffer = sides.a.allocate(100'000);
  const auto waiting = sides.a.send(buffer);
  sides.loop.reset();
  EXPECT_EQ(waiting.status(), Status::failed);
  EXPECT_EQ(sides.a.state(), State::ended);
  EXPECT_EQ(sides.a.send("x").error_number(), ENOTCONN);
  EXPECT_FALSE(sides.b.try_receive());
  EXPECT_TRUE(sides.a_log.failed.empty()) << "no callback comes any more";
  sides.a.disconnect();
  sides.listener.reset();
}

TEST(Ending, APendingRequestMayOutliveItsLoop) {
  std::vector<Request> requests;
  Log log;
  {
    EventLoop loop;
    auto listener = loop.listen({test::host(), 0},
                                [&](Request request) { requests.push_back(std::move(request)); });
    loop.connect({test::host(), listener.port()}, log.handlers());
    until(loop, [&] { return requests.size() == 1; });
  }
  EXPECT_THROW(requests[0].accept({}), Error);
}

}  // namespace
}  // namespace weft::message::testing
