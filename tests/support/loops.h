// The event loops that the tests of coroutines run in.
#pragma once

#include <gtest/gtest.h>

#include <asio/io_context.hpp>
#include <functional>
#include <string>
#include <type_traits>

#include "weft/asio.hpp"
#include "weft/message.hpp"

namespace weft::test {

class OwnLoop {
 public:
  [[nodiscard]] Executor& executor() { return loop_.executor(); }
  void start(Task<> task) { loop_.spawn(std::move(task)); }
  void step(Deadline deadline) { loop_.step(deadline); }

 private:
  message::EventLoop loop_;
};

class AsioLoop {
 public:
  [[nodiscard]] Executor& executor() { return executor_; }
  void start(Task<> task) {
    executor_.run(std::move(task), [this](const std::exception_ptr& failed) { failed_ = failed; });
  }
  void step(Deadline deadline) {
    const int ms = deadline.poll_timeout_ms();
    context_.restart();
    if (ms < 0) {
      context_.run_one();
    } else {
      context_.run_one_for(std::chrono::milliseconds(ms));
    }
    if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  }

 private:
  asio::io_context context_;
  AsioExecutor executor_{context_.get_executor()};
  std::exception_ptr failed_;
};

// For TYPED_TEST_SUITE.
using Loops = ::testing::Types<OwnLoop, AsioLoop>;
struct LoopNames {
  template <typename T>
  static std::string GetName(int) {
    return std::is_same_v<T, OwnLoop> ? "Own" : "Asio";
  }
};

// The base of fixtures for tests that run in both loops.
template <typename Loop>
class InLoop : public ::testing::Test {
 protected:
  // Runs all tasks to their ends.
  template <typename... Tasks>
  void run(Tasks... tasks) {
    int left = sizeof...(tasks);
    (loop.start(count_down(std::move(tasks), left)), ...);
    while (left > 0) loop.step(std::chrono::seconds(30));
  }

  Loop loop;

 private:
  static Task<> count_down(Task<> task, int& left) {
    co_await task;
    --left;
  }
};

}  // namespace weft::test
