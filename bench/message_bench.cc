// Compares weft::message with ZeroMQ over TCP, alternating in each round: half round trips and
// message rate between two processes on loopback, which sleep while nothing arrives. The ratios
// count; absolute figures are for orientation only.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "weft/message.hpp"

namespace weft::bench {
namespace {

using Clock = std::chrono::steady_clock;
using message::Connection;
using message::EventLoop;
using message::Handlers;
using message::Received;
using message::Request;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs `passive` in a forked process, which reports its port, and `active` in another; returns the
// result of `active`.
double in_pair(const std::function<void(int out)>& passive,
               const std::function<double(std::uint16_t port)>& active) {
  std::array<int, 2> line{};
  if (pipe(line.data()) != 0) std::abort();
  const pid_t pid = fork();
  if (pid == 0) {
    passive(line[1]);
    _exit(0);
  }
  // `active` also gets a process of its own, because a process that has opened a device should not
  // fork.
  std::array<int, 2> result{};
  if (pipe(result.data()) != 0) std::abort();
  const pid_t other = fork();
  if (other == 0) {
    std::uint16_t port = 0;
    if (read(line[0], &port, sizeof port) != sizeof port) std::abort();
    const double value = active(port);
    _exit(write(result[1], &value, sizeof value) == sizeof value ? 0 : 1);
  }
  double value = 0;
  if (read(result[0], &value, sizeof value) != sizeof value) std::abort();
  for (const pid_t each : {pid, other}) waitpid(each, nullptr, 0);
  for (const int fd : {line[0], line[1], result[0], result[1]}) close(fd);
  return value;
}

void report_port(int out, std::uint16_t port) {
  if (write(out, &port, sizeof port) != sizeof port) std::abort();
}

// --- weft ----------------------------------------------------------------------------------------

// Sends every message back; of a one-way flow, one byte for every `every`th message.
void weft_passive(int out, int every) {
  EventLoop loop;
  int count = 0;
  Handlers handlers;
  handlers.message = [&](Connection& from, Received& got) {
    if (++count % every == 0) from.send(every == 1 ? got.bytes() : got.bytes().first(1));
  };
  handlers.disconnected = [&](Connection&, const message::Ending&) { loop.stop(); };
  const auto listener =
      loop.listen({"127.0.0.1", 0}, [&](Request request) { request.accept(handlers); });
  report_port(out, listener.port());
  loop.run();
}

double weft_active(std::uint16_t port, std::size_t bytes, int messages, bool one_way) {
  EventLoop loop;
  int answers = 0;
  bool established = false;
  Handlers handlers;
  handlers.established = [&](Connection&) { established = true; };
  handlers.message = [&](Connection&, Received&) { ++answers; };
  auto connection = loop.connect({"127.0.0.1", port}, handlers);
  while (!established) loop.step(Deadline::never());
  const auto buffer = connection.allocate(bytes);
  std::ranges::fill(buffer.bytes(), std::byte{1});
  const auto start = Clock::now();
  for (int i = 0; i < messages; ++i) {
    while (!connection.send(buffer)) loop.step(Deadline::never());
    if (one_way) {
      if (i % 32 == 0) loop.step();
    } else {
      while (answers <= i) loop.step(Deadline::never());
    }
  }
  while (answers == 0) loop.step(Deadline::never());
  const double seconds = seconds_since(start);
  connection.disconnect();
  while (loop.connections() > 0) loop.step(Deadline::never());
  return seconds;
}

double weft_run(std::size_t bytes, int messages, bool one_way) {
  return in_pair([=](int out) { weft_passive(out, one_way ? messages : 1); },
                 [=](std::uint16_t port) { return weft_active(port, bytes, messages, one_way); });
}

// --- ZeroMQ --------------------------------------------------------------------------------------

void need(bool good) {
  if (good) return;
  fmt::print(stderr, "message_bench: ZeroMQ: {}\n", zmq_strerror(zmq_errno()));
  std::abort();
}

// Sets the same send queue limit as weft::message has: 1024 messages.
void* zmq_pair(void* context) {
  void* socket = zmq_socket(context, ZMQ_PAIR);
  const int queue = 1024;
  need(socket && zmq_setsockopt(socket, ZMQ_SNDHWM, &queue, sizeof queue) == 0 &&
       zmq_setsockopt(socket, ZMQ_RCVHWM, &queue, sizeof queue) == 0);
  return socket;
}

void zmq_passive(int out, int messages, bool one_way) {
  void* context = zmq_ctx_new();
  void* socket = zmq_pair(context);
  need(zmq_bind(socket, "tcp://127.0.0.1:*") == 0);
  std::array<char, 64> where{};
  std::size_t length = where.size();
  need(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, where.data(), &length) == 0);
  report_port(out, static_cast<std::uint16_t>(std::atoi(std::strrchr(where.data(), ':') + 1)));
  zmq_msg_t message;
  need(zmq_msg_init(&message) == 0);
  for (int i = 0; i < messages; ++i) {
    need(zmq_msg_recv(&message, socket, 0) >= 0);
    if (!one_way) need(zmq_msg_send(&message, socket, 0) >= 0);
  }
  if (one_way) need(zmq_send(socket, "x", 1, 0) == 1);
  zmq_close(socket);
  zmq_ctx_term(context);
}

double zmq_active(std::uint16_t port, std::size_t bytes, int messages, bool one_way) {
  void* context = zmq_ctx_new();
  void* socket = zmq_pair(context);
  need(zmq_connect(socket, fmt::format("tcp://127.0.0.1:{}", port).c_str()) == 0);
  const std::vector<char> data(bytes, 1);
  zmq_msg_t answer;
  need(zmq_msg_init(&answer) == 0);
  const auto start = Clock::now();
  for (int i = 0; i < messages; ++i) {
    need(zmq_send(socket, data.data(), bytes, 0) >= 0);
    if (!one_way) need(zmq_msg_recv(&answer, socket, 0) >= 0);
  }
  if (one_way) need(zmq_msg_recv(&answer, socket, 0) >= 0);
  const double seconds = seconds_since(start);
  zmq_close(socket);
  zmq_ctx_term(context);
  return seconds;
}

double zmq_run(std::size_t bytes, int messages, bool one_way) {
  return in_pair([=](int out) { zmq_passive(out, messages, one_way); },
                 [=](std::uint16_t port) { return zmq_active(port, bytes, messages, one_way); });
}

// --- Many connections on one thread of each side -------------------------------------------------

// A short burst on each connection in turn.
constexpr int burst = 8;

// What is sent over all connections together, before the time is taken and while it is. The first
// messages of a connection use memory that neither end has touched before.
struct Amount {
  int unmeasured = 0;
  int measured = 0;
  [[nodiscard]] bool ends_with(int count) const {
    return count == unmeasured || count == unmeasured + measured;
  }
};

// Calls `send_all` with each of the two amounts, and returns how long the second one took.
template <typename SendAll>
double measured_seconds(const Amount& amount, const SendAll& send_all) {
  if (amount.unmeasured > 0) send_all(amount.unmeasured);
  const auto start = Clock::now();
  send_all(amount.measured);
  return seconds_since(start);
}

void weft_many_passive(int out, int connections, const Amount& amount) {
  EventLoop loop;
  int count = 0;
  int ended = 0;
  Handlers handlers;
  handlers.message = [&](Connection& from, Received& got) {
    if (amount.ends_with(++count)) from.send(got.bytes().first(1));
  };
  handlers.disconnected = [&](Connection&, const message::Ending&) {
    if (++ended == connections) loop.stop();
  };
  const auto listener = loop.listen(
      {"127.0.0.1", 0}, [&](Request request) { request.accept(handlers); }, 1024);
  report_port(out, listener.port());
  loop.run();
}

double weft_many_active(std::uint16_t port, int connections, std::size_t bytes,
                        const Amount& amount) {
  EventLoop loop;
  int established = 0;
  bool answered = false;
  Handlers handlers;
  handlers.established = [&](Connection&) { ++established; };
  handlers.message = [&](Connection&, Received&) { answered = true; };
  std::vector<Connection> all;
  for (int i = 0; i < connections; ++i) {
    all.push_back(loop.connect({"127.0.0.1", port}, handlers));
    // As many attempts at once as a listener of ours answers without delay.
    while (established < i - 32) loop.step(Deadline::never());
  }
  while (established < connections) loop.step(Deadline::never());
  const std::vector<std::byte> data(bytes, std::byte{1});
  const double seconds = measured_seconds(amount, [&](int messages) {
    answered = false;
    int sent = 0;
    while (sent < messages) {
      for (Connection& connection : all) {
        for (int i = 0; i < burst && sent < messages && connection.send(data); ++i) ++sent;
      }
      loop.step();
    }
    while (!answered) loop.step(Deadline::never());
  });
  for (Connection& connection : all) connection.disconnect();
  while (loop.connections() > 0) loop.step(Deadline::never());
  return seconds;
}

// The identity of the sender comes before each message.
void zmq_many_passive(int out, const Amount& amount) {
  void* context = zmq_ctx_new();
  void* socket = zmq_socket(context, ZMQ_ROUTER);
  need(zmq_bind(socket, "tcp://127.0.0.1:*") == 0);
  std::array<char, 64> where{};
  std::size_t length = where.size();
  need(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, where.data(), &length) == 0);
  report_port(out, static_cast<std::uint16_t>(std::atoi(std::strrchr(where.data(), ':') + 1)));
  zmq_msg_t identity;
  zmq_msg_t message;
  need(zmq_msg_init(&identity) == 0 && zmq_msg_init(&message) == 0);
  for (int i = 1; i <= amount.unmeasured + amount.measured; ++i) {
    need(zmq_msg_recv(&identity, socket, 0) >= 0 && zmq_msg_recv(&message, socket, 0) >= 0);
    if (!amount.ends_with(i)) continue;
    need(zmq_msg_send(&identity, socket, ZMQ_SNDMORE) >= 0 && zmq_send(socket, "x", 1, 0) == 1);
  }
  zmq_close(socket);
  zmq_ctx_term(context);
}

double zmq_many_active(std::uint16_t port, int connections, std::size_t bytes,
                       const Amount& amount) {
  void* context = zmq_ctx_new();
  need(zmq_ctx_set(context, ZMQ_MAX_SOCKETS, connections + 16) == 0);
  std::vector<void*> all;
  std::vector<zmq_pollitem_t> answers;
  for (int i = 0; i < connections; ++i) {
    all.push_back(zmq_socket(context, ZMQ_DEALER));
    need(all.back() &&
         zmq_connect(all.back(), fmt::format("tcp://127.0.0.1:{}", port).c_str()) == 0);
    answers.push_back({all.back(), 0, ZMQ_POLLIN, 0});
  }
  const std::vector<char> data(bytes, 1);
  const double seconds = measured_seconds(amount, [&](int messages) {
    int sent = 0;
    while (sent < messages) {
      for (void* socket : all) {
        for (int i = 0; i < burst && sent < messages; ++i, ++sent) {
          need(zmq_send(socket, data.data(), bytes, 0) >= 0);
        }
      }
    }
    need(zmq_poll(answers.data(), connections, -1) == 1);
    const auto answered =
        std::ranges::find_if(answers, [](const auto& one) { return one.revents != 0; });
    char answer = 0;
    need(zmq_recv(answered->socket, &answer, 1, 0) == 1);
  });
  const int none = 0;
  for (void* socket : all) {
    need(zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none) == 0);
    zmq_close(socket);
  }
  zmq_ctx_term(context);
  return seconds;
}

// --- Rows ----------------------------------------------------------------------------------------

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

using Run = std::function<double()>;

void measure(const char* name, const Run& zmq, const Run& weft, int messages, bool one_way,
             int rounds) {
  std::vector<double> ratios;
  std::vector<double> weft_values;
  std::vector<double> zeromq_values;
  for (int i = 0; i < rounds; ++i) {
    zeromq_values.push_back(zmq());
    weft_values.push_back(weft());
    // Ratios of times for round trips, of rates for flows.
    ratios.push_back(one_way ? zeromq_values.back() / weft_values.back()
                             : weft_values.back() / zeromq_values.back());
  }
  const auto shown = [&](double seconds) {
    return one_way ? messages / seconds : seconds / messages / 2 * 1e6;
  };
  const auto [low, high] = std::ranges::minmax_element(ratios);
  fmt::print("{:<36} {:>6.2f} [{:.2f}..{:.2f}]   zmq {:>10.1f}  weft {:>10.1f} {}\n", name,
             median(ratios), *low, *high, shown(median(zeromq_values)), shown(median(weft_values)),
             one_way ? "messages/s" : "us");
  std::fflush(stdout);
}

}  // namespace
}  // namespace weft::bench

int main(int count, char** arguments) {
  int rounds = 5;
  CLI::App app("weft::message against ZeroMQ over TCP");
  app.add_option("--rounds", rounds, "rounds per row; the median is printed");
  std::string only;
  app.add_option("--only", only, "the rows whose names contain this");
  int effort = 1;
  app.add_option("--effort", effort, "multiplies the number of messages");
  CLI11_PARSE(app, count, arguments);
  setenv("WEFT_QUIET", "1", 1);
  fmt::print(
      "ratio weft/zmq: median [min..max] of {} rounds; half round trips: lower is better, "
      "rates: higher\n",
      rounds);
  const auto measure = [&](const std::string& name, std::size_t bytes, int messages, bool one_way,
                           int times) {
    if (name.find(only) == std::string::npos) return;
    messages *= effort;
    weft::bench::measure(
        name.c_str(), [=] { return weft::bench::zmq_run(bytes, messages, one_way); },
        [=] { return weft::bench::weft_run(bytes, messages, one_way); }, messages, one_way, times);
  };
  // `sustained`: after twice as many messages, which are not measured.
  const auto measure_many = [&](const std::string& name, int connections, int messages,
                                bool sustained) {
    if (name.find(only) == std::string::npos) return;
    constexpr std::size_t bytes = 64;
    messages *= effort;
    const weft::bench::Amount amount{.unmeasured = sustained ? 2 * messages : 0,
                                     .measured = messages};
    using namespace weft::bench;
    weft::bench::measure(
        name.c_str(),
        [=] {
          return in_pair([=](int out) { zmq_many_passive(out, amount); },
                         [=](std::uint16_t port) {
                           return zmq_many_active(port, connections, bytes, amount);
                         });
        },
        [=] {
          return in_pair([=](int out) { weft_many_passive(out, connections, amount); },
                         [=](std::uint16_t port) {
                           return weft_many_active(port, connections, bytes, amount);
                         });
        },
        messages, true, rounds);
  };
  measure("half round trip, 64 B", 64, 10'000, false, rounds);
  measure("half round trip, 4 KiB", 4096, 10'000, false, rounds);
  measure("half round trip, 64 KiB", 1 << 16, 3'000, false, rounds);
  measure("half round trip, 1 MiB", 1 << 20, 300, false, rounds);
  measure("rate, 64 B", 64, 200'000, true, rounds);
  measure("rate, 4 KiB", 4096, 50'000, true, rounds);
  measure("rate, 64 KiB", 1 << 16, 5'000, true, rounds);
  measure("rate, 1 MiB", 1 << 20, 500, true, rounds);
  measure_many("rate, 64 B, 100 connections", 100, 200'000, false);
  measure_many("rate, 64 B, 100 connections, later", 100, 200'000, true);
  measure_many("rate, 64 B, 1000 connections", 1000, 200'000, false);
  measure_many("rate, 64 B, 1000 connections, later", 1000, 200'000, true);
  return 0;
}
