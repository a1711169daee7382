// The event loops that the tests of coroutines run in.
#pragma once

#include <asio/io_context.hpp>
#include <functional>

#include "weft/asio.hpp"
#include "weft/connection.hpp"
#include "weft/message.hpp"

namespace weft::connection::testing {

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

}  // namespace weft::connection::testing
