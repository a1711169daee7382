// Runs Weft's coroutines on Asio's event loop. Needs Asio to be installed:
//
//   asio::io_context context;
//   weft::AsioExecutor executor(context.get_executor());
//   weft::connection::Async async(executor);
//   asio::co_spawn(context, [&]() -> asio::awaitable<void> {
//     auto connection = co_await executor.run(async.connect({"host", 7174}, 10s),
//     asio::use_awaitable);
//   }, asio::detached);
//
// run() accepts any completion token of Asio: a callback, use_future, use_awaitable and so on.
#pragma once

#include <asio/any_io_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/dispatch.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "weft/executor.hpp"
#include "weft/task.hpp"

namespace weft {

// Must outlive the tasks that it runs, and be destroyed before its io_context. If several threads
// run the io_context, use a strand.
class AsioExecutor : public Executor {
 public:
  // Resumes tasks in this executor.
  explicit AsioExecutor(asio::any_io_executor executor) : executor_(std::move(executor)) {}
  ~AsioExecutor() override { tasks_.clear(); }

  void when_readable(int fd, std::function<void()> ready) override {
    auto wait = std::make_shared<Wait>(executor_, fd, std::move(ready));
    waits_[fd] = wait;
    wait->descriptor.async_wait(
        asio::posix::descriptor_base::wait_read, [this, wait](const asio::error_code&) {
          const auto call = std::move(wait->ready);
          if (!call) return;  // forget() came first, and the executor may be destroyed
          forget(wait->descriptor.native_handle());
          call();
        });
  }

  void forget(int fd) noexcept override {
    const auto found = waits_.find(fd);
    if (found == waits_.end()) return;
    found->second->ready = nullptr;
    found->second->descriptor.release();  // cancels the wait; the caller owns the descriptor
    waits_.erase(found);
  }

  // Starts the task in this executor. The signature of `token` is void(std::exception_ptr) for a
  // Task<void>, else void(std::exception_ptr, T).
  template <typename T, typename Token>
  auto run(Task<T> task, Token&& token) {
    using Signature = typename Result<T>::Signature;
    return asio::async_initiate<Token, Signature>(
        [this](auto handler, Task<T> begun) {
          auto shared = std::make_shared<decltype(handler)>(std::move(handler));
          if constexpr (std::is_void_v<T>) {
            tasks_.start(std::move(begun), [this, shared](const std::exception_ptr& failed) {
              complete(*shared, [shared, failed] { (*shared)(failed); });
            });
          } else {
            tasks_.start(std::move(begun),
                         [this, shared](const std::exception_ptr& failed, std::optional<T> result) {
                           auto kept = std::make_shared<std::optional<T>>(std::move(result));
                           complete(*shared, [shared, failed, kept] {
                             Result<T>::give(*shared, failed, *kept);
                           });
                         });
          }
        },
        token, std::move(task));
  }

 private:
  struct Wait {
    Wait(const asio::any_io_executor& executor, int fd, std::function<void()> call)
        : descriptor(executor, fd), ready(std::move(call)) {}
    asio::posix::stream_descriptor descriptor;
    std::function<void()> ready;
  };

  // The arguments of a handler. Asio needs a value even if the task has failed, so a type without a
  // default constructor is passed as std::optional.
  template <typename T>
  struct Result {
    static constexpr bool plain = std::is_default_constructible_v<T>;
    using Value = std::conditional_t<plain, T, std::optional<T>>;
    using Signature = void(std::exception_ptr, Value);
    template <typename Handler>
    static void give(Handler& handler, const std::exception_ptr& failed, std::optional<T>& result) {
      if constexpr (plain) {
        handler(failed, result ? std::move(*result) : T{});
      } else {
        handler(failed, std::move(result));
      }
    }
  };

  template <typename Handler, typename Call>
  void complete(Handler& handler, Call call) {
    asio::dispatch(asio::get_associated_executor(handler, executor_), std::move(call));
  }

  asio::any_io_executor executor_;
  std::unordered_map<int, std::shared_ptr<Wait>> waits_;
  TaskSet tasks_;
};

template <>
struct AsioExecutor::Result<void> {
  using Signature = void(std::exception_ptr);
};

}  // namespace weft
