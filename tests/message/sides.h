// Two ends of a message connection in one process, which the test drives step by step.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/host.h"
#include "support/random.h"
#include "weft/message.hpp"

namespace weft::message::testing {

using namespace std::chrono_literals;
constexpr auto test_timeout = 60s;

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
using test::pattern;

// Steps the loop until the condition is true. Throws if it does not become true in time.
inline void until(EventLoop& loop, const std::function<bool()>& done) {
  const Deadline deadline = test_timeout;
  while (!done()) {
    if (deadline.passed()) {
      ADD_FAILURE() << "it did not happen";
      throw std::runtime_error("the condition did not become true in time");
    }
    loop.step(100ms);
  }
}
inline void until(EventLoop& a, EventLoop& b, const std::function<bool()>& done) {
  const Deadline deadline = test_timeout;
  while (!done()) {
    if (deadline.passed()) {
      ADD_FAILURE() << "it did not happen";
      throw std::runtime_error("the condition did not become true in time");
    }
    if (a.step() + b.step() == 0) a.step(1ms);
  }
}

// Records all callbacks of one end.
struct Log {
  Connection connection;
  int established = 0;
  int writable = 0;
  std::vector<std::string> texts;   // of messages
  std::vector<std::uint64_t> sent;  // tags
  std::vector<std::uint64_t> delivered;
  std::vector<std::uint64_t> failed;
  std::vector<std::string> errors;
  std::vector<int> error_numbers;
  std::optional<RejectReason> rejected;
  std::vector<std::byte> rejection_data;
  std::vector<Ending> endings;

  Handlers handlers() {
    Handlers all;
    all.established = [this](Connection& c) {
      connection = c;
      ++established;
    };
    all.message = [this](Connection&, Received& got) { texts.push_back(text_of(got.bytes())); };
    all.sent = [this](Connection&, const Sending& m) { sent.push_back(m.tag()); };
    all.delivered = [this](Connection&, const Sending& m) { delivered.push_back(m.tag()); };
    all.failed = [this](Connection&, const Sending& m) { failed.push_back(m.tag()); };
    all.writable = [this](Connection&) { ++writable; };
    all.error = [this](Connection&, const Error& error) {
      errors.emplace_back(error.what());
      error_numbers.push_back(error.error_number());
      if (const auto* no = dynamic_cast<const Rejected*>(&error)) {
        rejected = no->reason();
        rejection_data = no->private_data();
      }
    };
    all.disconnected = [this](Connection&, const Ending& ending) { endings.push_back(ending); };
    return all;
  }
};

// A loop with a listener and a connection to itself. `a` is the active side, `b` the passive side.
struct Sides {
  explicit Sides(const Limits& limits = {}) : Sides(limits, {}, {}) {}
  Sides(const Limits& limits, std::function<void(Handlers&)> change_a,
        std::function<void(Handlers&)> change_b, const Options& options = {})
      : loop(std::make_unique<EventLoop>(limits)) {
    // Copies, because connections of the test's own come when the arguments are gone.
    listener.emplace(loop->listen({test::host(), 0}, [&, change_b, options](Request request) {
      Handlers handlers = b_log.handlers();
      if (change_b) change_b(handlers);
      b = request.accept(std::move(handlers), options);
    }));
    Handlers handlers = a_log.handlers();
    if (change_a) change_a(handlers);
    a = loop->connect({test::host(), listener->port()}, std::move(handlers), options);
    wait([&] { return a_log.established == 1 && b_log.established == 1; });
  }
  void wait(const std::function<bool()>& done) { until(*loop, done); }

  Log a_log;
  Log b_log;
  std::unique_ptr<EventLoop> loop;
  std::optional<Listener> listener;
  Connection a;
  Connection b;
};

}  // namespace weft::message::testing
