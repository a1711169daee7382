// Programs on the hosts of a simulation: rdma_cm, connections, messages, streams in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "weft/connection.hpp"
#include "weft/message.hpp"
#include "weft/simulation.hpp"
#include "weft/stream.hpp"

namespace weft::simulation {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint16_t port = 7174;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string text_of(const connection::Outcome& received, const connection::Buffer& buffer) {
  return text_of(buffer.elements().first(received.size_bytes));
}

// What the call throws, as text; empty: nothing.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

int number_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.error_number();
  }
  return 0;
}

// A world with two hosts, and what their programs have seen, with the times.
struct Pair {
  explicit Pair(std::uint64_t seed = 1, const Link& link = {})
      : world({.seed = seed, .link = link}), server(world.add_host()), client(world.add_host()) {}

  void note(const std::string& what) { log.push_back(what); }
  void note_time(const std::string& what) {
    log.push_back(what + " at " + std::to_string(world.now().count()));
  }
  [[nodiscard]] connection::Address server_address() const { return {server.address(), port}; }

  World world;
  Host server;
  Host client;
  std::vector<std::string> log;
};

// Accepts one connection, answers its message, and waits for its end.
void answer_one(Pair& pair) {
  connection::Listener listener({"", port});
  auto request = listener.next(1h);
  ASSERT_TRUE(request);
  const auto into = request->allocate(64);
  ASSERT_EQ(request->post_receive(into.slice(), 1), 0);
  auto peer = std::move(*request).accept({}, 10s);
  pair.note("accepted");
  const auto received = peer.await(connection::Queue::receive, 1, 10s);
  ASSERT_EQ(received.size(), 1U);
  ASSERT_TRUE(received.front().ok());
  pair.note("server got " + text_of(received.front(), into));
  const auto answer = peer.allocate(64);
  std::memcpy(answer.elements().data(), "pong", 4);
  ASSERT_EQ(peer.post_send(answer.slice(0, 4), 2), 0);
  ASSERT_EQ(peer.await(connection::Queue::send, 1, 10s).size(), 1U);
  EXPECT_TRUE(peer.await_disconnect(10s));
  pair.note("server saw the end");
}

void ask(Pair& pair) {
  connection::Prepared prepared(pair.server_address(), {}, 10s);
  const auto into = prepared.allocate(64);
  ASSERT_EQ(prepared.post_receive(into.slice(), 1), 0);
  auto peer = std::move(prepared).connect({}, 10s);
  pair.note("connected");
  const auto question = peer.allocate(64);
  std::memcpy(question.elements().data(), "ping", 4);
  ASSERT_EQ(peer.post_send(question.slice(0, 4), 2), 0);
  const auto received = peer.await(connection::Queue::receive, 1, 10s);
  ASSERT_EQ(received.size(), 1U);
  pair.note("client got " + text_of(received.front(), into));
  peer.disconnect();
}

TEST(SimulatedPrograms, ConnectAndExchangeMessages) {
  Pair pair;
  pair.server.run([&] { answer_one(pair); }, "server");
  pair.client.run([&] { ask(pair); }, "client");
  pair.world.run();
  EXPECT_THAT(pair.log, testing::UnorderedElementsAre("accepted", "connected", "server got ping",
                                                      "client got pong", "server saw the end"));
  EXPECT_LT(pair.world.now(), 1s);
}

TEST(SimulatedPrograms, RejectARequest) {
  Pair pair;
  pair.server.run([&] {
    connection::Listener listener({"", port});
    auto request = listener.next(1h);
    ASSERT_TRUE(request);
    std::move(*request).reject(bytes_of("not now"));
    sleep_for(1s);
  });
  pair.client.run([&] {
    try {
      (void)connection::connect(pair.server_address(), 10s);
    } catch (const connection::Rejected& rejected) {
      pair.note("rejected: " + text_of(rejected.private_data()));
    }
  });
  pair.world.run();
  EXPECT_THAT(pair.log, ElementsAre("rejected: not now"));
}

// A client of a program that has its request, and answers it after this time. Returns the errno
// value of the client, 0 if it is connected, and how long that took.
std::pair<int, std::chrono::nanoseconds> connect_to_late(std::chrono::nanoseconds late,
                                                         DeviceOptions::Personality personality) {
  Pair pair;
  pair.server.run([&] {
    connection::Listener listener({"", port});
    auto request = listener.next(1h);
    ASSERT_TRUE(request);
    sleep_for(late);
    // The client may have given up.
    if (late < 1h) (void)number_of([&] { (void)std::move(*request).accept({}, 1h); });
    sleep_for(1h);
  });
  std::pair<int, std::chrono::nanoseconds> result;
  pair.client.run(
      [&] {
        const auto began = pair.world.now();
        const int error = number_of([&] { (void)connection::connect(pair.server_address(), 1h); });
        result = {error, pair.world.now() - began};
      },
      "client", {.personality = personality});
  pair.world.run();
  return result;
}

TEST(SimulatedPrograms, WaitForALateAnswerAsAdaptersDo) {
  using enum DeviceOptions::Personality;
  for (const auto personality : {roce, ib}) {
    const auto [error, time] = connect_to_late(1min, personality);
    EXPECT_EQ(error, 0);
    EXPECT_GE(time, 1min);
  }
  EXPECT_EQ(connect_to_late(9s, iwarp).first, 0);
  EXPECT_EQ(connect_to_late(1min, iwarp).first, ETIMEDOUT);
}

TEST(SimulatedPrograms, GiveUpAPeerThatNeverAnswers) {
  using enum DeviceOptions::Personality;
  for (const auto personality : {roce, ib, iwarp}) {
    const auto [error, time] = connect_to_late(2h, personality);
    EXPECT_EQ(error, ETIMEDOUT);
    EXPECT_GE(time, personality == iwarp ? 10s : 73s);
    EXPECT_LT(time, personality == iwarp ? 11s : 75s);
  }
}

TEST(SimulatedPrograms, StreamsMayHaveATimeoutForTheAnswer) {
  Pair pair;
  pair.server.run([&] {
    connection::Listener listener({"", port});
    const auto request = listener.next(1h);
    EXPECT_TRUE(request);
    sleep_for(1h);
  });
  pair.client.run([&] {
    stream::Options options;
    options.answer_timeout = 3s;
    stream::Stream stream(options);
    const auto began = pair.world.now();
    EXPECT_EQ(number_of([&] { stream.connect(pair.server_address(), 1h); }), ETIMEDOUT);
    EXPECT_GE(pair.world.now() - began, 3s);
    EXPECT_LT(pair.world.now() - began, 4s);
  });
  pair.world.run();
}

TEST(SimulatedPrograms, FindNobodyWhoListens) {
  Pair pair;
  pair.client.run([&] {
    const int error = number_of([&] { (void)connection::connect(pair.server_address(), 1h); });
    EXPECT_EQ(error, ECONNREFUSED);
    EXPECT_LT(pair.world.now(), 1min);
  });
  pair.world.run();
}

TEST(SimulatedPrograms, FindNoSuchHost) {
  Pair pair;
  pair.client.run([&] {
    EXPECT_THAT(error_of([&] {
                  (void)connection::connect({"server.example", port}, 1h);
                }),
                HasSubstr("no host has that name"));
    // An address that no host has: there is no answer.
    const auto began = pair.world.now();
    EXPECT_EQ(number_of([&] { (void)connection::connect({"10.9.9.9", port}, 3s); }), ETIMEDOUT);
    EXPECT_EQ(pair.world.now() - began, 3s);
  });
  pair.world.run();
}

TEST(SimulatedPrograms, WaitForHoursInNoTime) {
  Pair pair;
  pair.server.run([&] {
    connection::Listener listener({"", port});
    EXPECT_FALSE(listener.next(5h));
    EXPECT_EQ(pair.world.now(), 5h);
    sleep_for(30min);
    const Deadline deadline = 90min;
    EXPECT_FALSE(listener.next(deadline));
    EXPECT_TRUE(deadline.passed());
    EXPECT_EQ(pair.world.now(), 7h);
  });
  pair.world.run();
  EXPECT_EQ(pair.world.now(), 7h);
}

TEST(SimulatedPrograms, EndALoopsWaitAtItsTimer) {
  Pair pair;
  pair.server.run([&] {
    message::EventLoop loop;
    loop.after(5h, [&] { pair.note_time("late"); });
    const auto canceled = loop.after(4h, [&] { pair.note_time("never"); });
    loop.after(3h, [&] {
      pair.note_time("early");
      loop.cancel(canceled);
    });
    while (pair.log.size() < 2) loop.step(6h);
    EXPECT_EQ(pair.world.now(), 5h);
    loop.step(1h);
    EXPECT_EQ(pair.world.now(), 6h);
  });
  pair.world.run();
  EXPECT_THAT(pair.log, ElementsAre("early at 10800000000000", "late at 18000000000000"));
}

// A server of messages, which answers each and counts.
void serve_messages(Pair& pair, std::size_t count) {
  message::EventLoop loop;
  std::size_t answered = 0;
  bool over = false;
  const auto listener = loop.listen({"", port}, [&](message::Request request) {
    request.accept({.message =
                        [&](message::Connection& peer, message::Received& received) {
                          pair.note("asked " + std::string(text_of(received.bytes())));
                          peer.send("re: " + std::string(text_of(received.bytes())));
                          ++answered;
                        },
                    .disconnected = [&](auto&, auto&) { over = true; }});
  });
  while (!over) loop.step(Deadline::never());
  EXPECT_EQ(answered, count);
}

void ask_messages(Pair& pair, std::size_t count) {
  message::EventLoop loop;
  std::size_t answers = 0;
  bool over = false;
  const auto connection =
      loop.connect(pair.server_address(),
                   {.established =
                        [&](message::Connection& peer) {
                          for (std::size_t i = 0; i < count; ++i) {
                            peer.send("message " + std::to_string(i));
                          }
                        },
                    .message =
                        [&](message::Connection& peer, message::Received& received) {
                          pair.note(std::string(text_of(received.bytes())));
                          if (++answers == count) peer.disconnect_after_sending();
                        },
                    .error = [&](auto&, const Error& error) { ADD_FAILURE() << error.what(); },
                    .disconnected = [&](auto&, auto&) { over = true; }});
  while (!over) loop.step(Deadline::never());
}

TEST(SimulatedPrograms, ExchangeMessagesByLoops) {
  Pair pair;
  pair.server.run([&] { serve_messages(pair, 3); }, "server");
  pair.client.run([&] { ask_messages(pair, 3); }, "client");
  pair.world.run();
  std::vector<std::string> answers;
  for (const auto& each : pair.log) {
    if (each.starts_with("re")) answers.push_back(each);
  }
  EXPECT_THAT(answers, ElementsAre("re: message 0", "re: message 1", "re: message 2"));
}

TEST(SimulatedPrograms, StreamsCarryBytes) {
  Pair pair;
  constexpr std::size_t size = 300'000;  // more than the ring
  pair.server.run([&] {
    stream::Listener listener({"", port});
    auto peer = listener.accept(1h);
    std::vector<std::byte> bytes(size);
    std::size_t got = 0;
    while (got < size) {
      const auto outcome = peer.receive(std::span(bytes).subspan(got), 10s);
      ASSERT_EQ(outcome.status, stream::TransferStatus::ok);
      got += outcome.bytes;
    }
    EXPECT_EQ(bytes[size - 1], std::byte{7});
    pair.note("all");
    EXPECT_EQ(peer.send(bytes_of("thanks"), 10s).status, stream::TransferStatus::ok);
  });
  pair.client.run([&] {
    stream::Stream peer;
    peer.connect(pair.server_address(), 10s);
    std::vector<std::byte> bytes(size);
    bytes[size - 1] = std::byte{7};
    std::size_t sent = 0;
    while (sent < size) {
      const auto outcome = peer.send(std::span(bytes).subspan(sent), 10s);
      ASSERT_EQ(outcome.status, stream::TransferStatus::ok);
      sent += outcome.bytes;
    }
    std::array<std::byte, 64> answer{};
    const auto outcome = peer.receive(answer, 10s);
    ASSERT_EQ(outcome.status, stream::TransferStatus::ok);
    pair.note(text_of(std::span(answer).first(outcome.bytes)));
    EXPECT_EQ(peer.receive(answer, 10s).status, stream::TransferStatus::end);
  });
  pair.world.run();
  EXPECT_THAT(pair.log, ElementsAre("all", "thanks"));
}

TEST(SimulatedPrograms, AreKilledAndStartedAgain) {
  Pair pair;
  const auto serve = [&] {
    connection::Listener listener({"", port});
    while (true) {
      auto peer = listener.accept(Deadline::never());
      pair.note("accepted");
      EXPECT_TRUE(peer.await_disconnect(Deadline::never()));
    }
  };
  pair.server.run(serve, "server");
  pair.client.run([&] {
    auto first = connection::connect(pair.server_address(), 10s);
    sleep_for(1s);
    EXPECT_TRUE(pair.world.is_alive(pair.server));
    pair.world.kill(pair.server);
    EXPECT_FALSE(pair.world.is_alive(pair.server));
    EXPECT_TRUE(first.await_disconnect(10s));
    pair.note("the end");
    EXPECT_EQ(number_of([&] { (void)connection::connect(pair.server_address(), 10s); }),
              ECONNREFUSED);
    pair.server.run(serve, "server again");
    auto second = connection::connect(pair.server_address(), 10s);
    pair.note("connected again");
    sleep_for(1s);
    pair.world.kill(pair.server);
  });
  pair.world.run();
  ASSERT_EQ(pair.log.size(), 4U);
  EXPECT_EQ(pair.log[0], "accepted");
  EXPECT_EQ(pair.log[1], "the end");
  EXPECT_THAT(pair.log, testing::Contains("connected again"));
  EXPECT_THAT(pair.log, testing::Contains("accepted").Times(2));
}

TEST(SimulatedPrograms, UnwindWhenTheyAreKilled) {
  Pair pair;
  struct Noted {
    Pair& of;
    ~Noted() { of.note("destroyed"); }
  };
  pair.server.run([&] {
    const Noted noted{pair};
    // A program that tries again whatever goes wrong.
    while (true) {
      try {
        connection::Listener listener({"", port});
        (void)listener.accept(1h);
      } catch (const std::exception& error) {
        pair.note(error.what());
      }
    }
  });
  pair.world.run_for(10min);
  EXPECT_THAT(pair.log, ElementsAre());
  pair.world.kill(pair.server);
  EXPECT_THAT(pair.log, ElementsAre("destroyed"));
  pair.world.run();
}

TEST(SimulatedPrograms, MayKillTheirOwnHost) {
  Pair pair;
  pair.server.run([&] {
    pair.world.kill(pair.server);
    pair.note("still alive");
  });
  pair.world.run();
  EXPECT_THAT(pair.log, ElementsAre());
}

TEST(SimulatedPrograms, EndWithTheirWorld) {
  bool destroyed = false;
  {
    World world({.seed = 1});
    const Host host = world.add_host();
    host.run([&] {
      struct Mark {
        bool& mark;
        ~Mark() { mark = true; }
      } const mark{destroyed};
      connection::Listener listener({"", port});
      (void)listener.next(Deadline::never());
    });
    host.run([] { ADD_FAILURE() << "was never carried out"; });
    EXPECT_TRUE(world.step());
    if (!destroyed) world.kill(host);
  }
  EXPECT_TRUE(destroyed);
}

TEST(SimulatedPrograms, DeadlockIsNamed) {
  Pair pair;
  pair.server.run(
      [&] {
        sleep_for(1500ms);
        connection::Listener listener({"", port});
        (void)listener.next(Deadline::never());
      },
      "the server");
  pair.client.run([&] { message::EventLoop().run(); }, "the client");
  const std::string error = error_of([&] { pair.world.run(); });
  EXPECT_THAT(error, HasSubstr("wait for ever"));
  EXPECT_THAT(error, HasSubstr("\"the server\" on 10.0.0.1 waits since 1.5 s"));
  EXPECT_THAT(error, HasSubstr("\"the client\" on 10.0.0.2 waits since 0 s"));
}

TEST(SimulatedPrograms, HaveALimitOfTime) {
  Pair pair;
  pair.server.run(
      [&] {
        while (true) sleep_for(1s);
      },
      "sleeper");
  EXPECT_EQ(number_of([&] { pair.world.run(1min); }), ETIMEDOUT);
  EXPECT_EQ(pair.world.now(), 1min);
  EXPECT_THAT(error_of([&] { pair.world.run(1min); }), HasSubstr("\"sleeper\" on 10.0.0.1"));
}

TEST(SimulatedPrograms, ExceptionsReachTheCaller) {
  Pair pair;
  pair.server.run([] { throw std::out_of_range("beyond"); });
  pair.client.run([&] {
    sleep_for(1s);
    pair.note("went on");
  });
  EXPECT_THROW(pair.world.run(), std::out_of_range);
  pair.world.run();
  EXPECT_THAT(pair.log, ElementsAre("went on"));
}

TEST(SimulatedPrograms, MustNotCarryOutEvents) {
  Pair pair;
  pair.server.run([&] {
    EXPECT_THROW(pair.world.step(), std::logic_error);
    EXPECT_THROW(pair.world.run(), std::logic_error);
    EXPECT_THROW(pair.world.run_for(1s), std::logic_error);
  });
  pair.world.run();
}

// What a run with this seed does, with all times.
std::vector<std::string> log_of(std::uint64_t seed, double loss = 0) {
  Pair pair(seed, {.latency = 5us, .jitter = 100us, .loss = loss});
  pair.server.run([&] {
    message::EventLoop loop;
    std::size_t over = 0;
    const auto listener = loop.listen({"", port}, [&](message::Request request) {
      pair.note_time("request");
      request.accept({.message =
                          [&](message::Connection& peer, message::Received& received) {
                            pair.note_time("got " + std::string(text_of(received.bytes())));
                            peer.send(text_of(received.bytes()));
                          },
                      .disconnected = [&](auto&, auto&) { ++over; }});
    });
    while (over < 3) loop.step(Deadline::never());
  });
  for (int client = 0; client < 3; ++client) {
    pair.world.add_host().run([&pair, client] {
      message::EventLoop loop;
      bool over = false;
      int left = 5;
      const auto text = [&] { return std::to_string(client) + "." + std::to_string(left); };
      loop.connect(pair.server_address(),
                   {.established = [&](message::Connection& peer) { peer.send(text()); },
                    .message =
                        [&](message::Connection& peer, message::Received& received) {
                          EXPECT_EQ(text_of(received.bytes()), text());
                          if (--left > 0) {
                            peer.send(text());
                          } else {
                            peer.disconnect_after_sending();
                          }
                        },
                    .error = [](auto&, const Error& error) { ADD_FAILURE() << error.what(); },
                    .disconnected = [&](auto&, auto&) { over = true; }});
      while (!over) loop.step(Deadline::never());
    });
  }
  pair.world.run();
  pair.note_time("end " + std::to_string(pair.world.trace()));
  return pair.log;
}

TEST(SimulatedPrograms, RepeatWithTheirSeed) {
  const auto first = log_of(7);
  EXPECT_EQ(first.size(), 3U + 15U + 1U);
  EXPECT_EQ(log_of(7), first);
  EXPECT_NE(log_of(8), first);
}

TEST(SimulatedPrograms, HaveOtherOrdersWithOtherSeeds) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::string order;
    for (const std::string& line : log_of(seed)) {
      if (line.starts_with("got")) order += line.substr(4, 1);
    }
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 5U);
}

TEST(SimulatedPrograms, LossDelaysAndLosesNothing) {
  const auto lossy = log_of(7, 0.2);
  EXPECT_EQ(lossy.size(), 3U + 15U + 1U);
  EXPECT_EQ(log_of(7, 0.2), lossy);
}

TEST(SimulatedPrograms, NoticeAVanishedPeerByKeepalive) {
  Pair pair;
  pair.server.run(
      [&] {
        message::EventLoop loop;
        const auto listener = loop.listen({"", port}, [&](message::Request request) {
          request.accept({.message = [](auto&, auto&) {}});
        });
        while (true) loop.step(Deadline::never());
      },
      "server");
  pair.client.run([&] {
    message::EventLoop loop;
    std::optional<int> error;
    loop.connect(pair.server_address(),
                 {.established = [&](auto&) { pair.world.cut(pair.server, pair.client); },
                  .disconnected =
                      [&](auto&, const message::Ending& ending) { error = ending.error_number; }},
                 {.keepalive = 1min});
    while (!error) loop.step(Deadline::never());
    // ECONNRESET where the device of the client was the first that gave the peer up.
    EXPECT_THAT(*error, testing::AnyOf(ETIMEDOUT, ECONNRESET));
    EXPECT_GT(pair.world.now(), 1s);
    EXPECT_LT(pair.world.now(), 3min);
    pair.world.kill(pair.server);
  });
  pair.world.run();
}

TEST(SimulatedPrograms, ShareAHostAndItsLoopback) {
  Pair pair;
  pair.server.run(
      [&] {
        connection::Listener listener({"", port});
        EXPECT_TRUE(listener.accept(1h).await_disconnect(1h));
        pair.note("disconnected");
      },
      "server");
  pair.server.run(
      [&] {
        auto peer = connection::connect({"127.0.0.1", port}, 10s);
        pair.note(peer.peer_address());
        peer.disconnect();
      },
      "client");
  pair.world.run();
  EXPECT_THAT(pair.log, testing::UnorderedElementsAre("127.0.0.1:7174", "disconnected"));
}

TEST(SimulatedPrograms, PortsAreTakenPerHost) {
  Pair pair;
  pair.server.run([&] {
    connection::Listener first({"", port});
    EXPECT_EQ(number_of([] { connection::Listener second({"", port}); }), EADDRINUSE);
    sleep_for(1h);
  });
  pair.server.run([&] {
    sleep_for(1s);
    EXPECT_EQ(number_of([] { connection::Listener second({"", port}); }), EADDRINUSE);
    sleep_for(1h);
    connection::Listener after_its_end({"", port});
  });
  pair.client.run([&] { connection::Listener elsewhere({"", port}); });
  pair.world.run();
}

TEST(SimulatedPrograms, UseEventsOfRdmaCmAndVerbs) {
  Pair pair;
  pair.server.run([&] {
    const auto devices = verbs::devices();
    ASSERT_EQ(devices.size(), 1U);
    EXPECT_EQ(devices.front().name(), "weft0");
    const verbs::EventChannel events;
    const verbs::Id id(events);
    id.bind({"", port});
    id.listen();
    auto event = events.next(1h);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    event.reset();  // rejects it
    sleep_for(1s);
  });
  pair.client.run([&] {
    const verbs::EventChannel events;
    const verbs::Id id(events);
    const auto next = [&] {
      const auto event = events.next(1min);
      return event ? std::string(event->name()) : "nothing";
    };
    id.resolve_address({pair.server.address(), port}, 1s);
    EXPECT_EQ(next(), "RDMA_CM_EVENT_ADDR_RESOLVED");
    id.resolve_route(1s);
    EXPECT_EQ(next(), "RDMA_CM_EVENT_ROUTE_RESOLVED");
    const auto context = id.context();
    const auto domain = context.create_domain();
    const auto queue = context.create_completion_queue(8);
    const auto pair_of_queues = id.create_queue_pair(domain, queue, queue,
                                                     {.max_send_wr = 4,
                                                      .max_recv_wr = 4,
                                                      .max_send_sge = 1,
                                                      .max_recv_sge = 1,
                                                      .max_inline_data = 0});
    id.connect();
    EXPECT_EQ(next(), "RDMA_CM_EVENT_REJECTED");
    EXPECT_EQ(next(), "nothing");
  });
  pair.world.run();
}

// A poll moves the clock where nothing else does, so that timeouts of the program end.
TEST(SimulatedPrograms, PollUntilADeadline) {
  Pair pair;
  pair.server.run([&] {
    const auto devices = verbs::devices();
    const auto context = devices.front().open();
    const auto queue = context.create_completion_queue(8);
    std::array<verbs::Completion, 1> found{};
    for (const auto length : {std::chrono::nanoseconds(1ms), std::chrono::nanoseconds(5h)}) {
      const auto began = pair.world.now();
      const Deadline deadline = length;
      while (!deadline.passed()) EXPECT_TRUE(queue.poll(found).empty());
      const auto took = pair.world.now() - began;
      EXPECT_GE(took, length);
      EXPECT_LT(took, length * 5 / 4);
    }
  });
  // Another one polls as well, and neither keeps the clock from moving.
  pair.client.run([&] {
    const auto devices = verbs::devices();
    const auto context = devices.front().open();
    const auto queue = context.create_completion_queue(8);
    std::array<verbs::Completion, 1> found{};
    const Deadline deadline = 1h;
    while (!deadline.passed()) EXPECT_TRUE(queue.poll(found).empty());
  });
  pair.world.run();
}

Task<> wait_twice(message::EventLoop& loop, Pair& pair) {
  co_await loop.sleep(2h);
  pair.note_time("first");
  co_await loop.sleep(30min);
  pair.note_time("second");
  loop.stop();
}

TEST(SimulatedPrograms, CoroutinesSleepInVirtualTime) {
  Pair pair;
  pair.server.run([&] {
    message::EventLoop loop;
    loop.spawn(wait_twice(loop, pair));
    loop.run();
  });
  pair.world.run();
  EXPECT_THAT(pair.log, ElementsAre("first at 7200000000000", "second at 9000000000000"));
}

Task<> connect_and_say(message::EventLoop& loop, Pair& pair) {
  const connection::Async async(loop.executor());
  connection::Connection peer = co_await async.connect(pair.server_address(), 10s);
  const auto text = peer.allocate(64);
  std::memcpy(text.elements().data(), "ping", 4);
  const auto sent = co_await async.send(peer, text.slice(0, 4), 10s);
  EXPECT_TRUE(sent && sent->ok());
  const bool over = co_await async.await_disconnect(peer, 1min);
  pair.note(over ? "over" : "still connected after a minute");
  loop.stop();
}

TEST(SimulatedPrograms, CoroutinesConnect) {
  Pair pair;
  pair.server.run([&] {
    connection::Listener listener({"", port});
    auto request = listener.next(1h);
    ASSERT_TRUE(request);
    const auto into = request->allocate(64);
    ASSERT_EQ(request->post_receive(into.slice(), 1), 0);
    auto peer = std::move(*request).accept({}, 10s);
    const auto received = peer.await(connection::Queue::receive, 1, 10s);
    ASSERT_EQ(received.size(), 1U);
    pair.note(text_of(received.front(), into));
    sleep_for(2min);
  });
  pair.client.run([&] {
    message::EventLoop loop;
    loop.spawn(connect_and_say(loop, pair));
    loop.run();
  });
  pair.world.run();
  EXPECT_THAT(pair.log, ElementsAre("ping", "still connected after a minute"));
}

// What a program has left behind can still be destroyed.
TEST(SimulatedPrograms, ObjectsMayOutliveThem) {
  std::optional<connection::Listener> listener;
  std::optional<message::EventLoop> loop;
  {
    Pair pair;
    pair.server.run([&] {
      listener.emplace(connection::Address{"", port});
      loop.emplace();
    });
    pair.world.run();
    EXPECT_FALSE(pair.world.is_alive(pair.server));
    listener.reset();
  }
  loop.reset();
}

TEST(SimulatedPrograms, HaveOptionsOfTheirDevice) {
  Pair pair;
  pair.server.run(
      [&] {
        const auto context = verbs::devices().front().open();
        EXPECT_EQ(context.query().max_qp, 3);
      },
      "server", {.adapter = "max_qp=3"});
  pair.client.run([&] {
    EXPECT_EQ(number_of([] { configure({}); }), 0);
    const auto context = verbs::devices().front().open();
    EXPECT_NE(context.query().max_qp, 3);
    EXPECT_EQ(number_of([] { configure({}); }), EBUSY);
  });
  pair.world.run();
}

}  // namespace
}  // namespace weft::simulation
