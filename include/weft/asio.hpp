// Runs Weft's coroutines on Asio's event loop. Needs Asio to be installed; with WEFT_USE_BOOST_ASIO
// defined it uses Boost's.
//
//   asio::io_context context;
//   weft::AsioExecutor executor(context.get_executor());
//   weft::connection::Async async(executor);
//   asio::co_spawn(context, [&]() -> asio::awaitable<void> {
//     auto connection = co_await executor.run(async.connect({"host", 7174}, 10s),
//                                             asio::use_awaitable);
//   }, asio::detached);
//
// run() accepts any completion token of Asio: a callback, use_future, use_awaitable and so on, and
// from Asio 1.20 on its cancellation slots. The layers have objects of Asio, too:
// weft/verbs/asio.hpp, weft/connection/asio.hpp, weft/message/asio.hpp and weft/stream/asio.hpp.
#pragma once

#ifdef WEFT_USE_BOOST_ASIO
#include <boost/asio/posix/stream_descriptor.hpp>
#else
#include <asio/posix/stream_descriptor.hpp>
#endif

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "weft/asio/common.hpp"
#include "weft/asio/runs.hpp"
#include "weft/executor.hpp"
#include "weft/task.hpp"

namespace weft {
inline namespace WEFT_ASIO_NAMESPACE {

// Must be destroyed before its io_context. If several threads run the io_context, use a strand.
// When it is destroyed, the tasks that have not ended are destroyed where they are suspended, and
// their operations end with Error(ECANCELED).
class AsioExecutor : public Executor {
 public:
  using executor_type = asio_detail::net::any_io_executor;

  // Resumes tasks in this executor.
  explicit AsioExecutor(const executor_type& executor)
      : runs_(std::make_shared<asio_detail::AsioRuns>(executor)) {}
  AsioExecutor(const AsioExecutor&) = delete;
  AsioExecutor& operator=(const AsioExecutor&) = delete;
  ~AsioExecutor() override { runs_->close(); }

  // The executor that runs the handlers which have none of their own.
  [[nodiscard]] executor_type get_executor() const { return runs_->executor(); }

  void when_readable(int fd, std::function<void()> ready) override {
    auto wait = std::make_shared<Wait>(runs_->executor(), fd, std::move(ready));
    waits_[fd] = wait;
    wait->descriptor.async_wait(
        asio_detail::net::posix::descriptor_base::wait_read,
        [this, wait](const asio_detail::AsioError&) {
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
  // Task<void>, else void(std::exception_ptr, T). A cancellation destroys the task where it is
  // suspended; what that means is documented with what the task awaits.
  template <typename T, typename Token>
  auto run(Task<T> task, Token&& token) {
    auto make = [begun = std::move(task)](const std::stop_token&) mutable {
      return std::move(begun);
    };
    return initiate<typename Result<T>::Signature, false>(std::move(make), Result<T>(), token);
  }
  // Starts the task that `start(stop)` returns: a cancellation requests the stop, so that the task
  // itself decides how it ends.
  //
  //   executor.run([&](std::stop_token stop) { return async.connect(peer, 10s, {}, {}, stop); },
  //                token);
  template <typename Start, typename Token>
  requires std::is_invocable_v<Start&, std::stop_token>
  auto run(Start start, Token&& token) {
    using Ends = ResultOf<std::invoke_result_t<Start&, std::stop_token>>;
    return initiate<typename Ends::Signature, true>(std::move(start), Ends(), token);
  }
  // Ends all operations: as cancellations do.
  void cancel() { runs_->for_each(&asio_detail::AsioRun::cancel); }

  // For the objects of the layers: starts the task that `make(stop)` returns. When it has ended,
  // `deliver(handler, end)` calls the handler, whose signature is given; `end` is an AsioEnd.
  template <typename Signature, bool gentle = true, typename Make, typename Deliver, typename Token>
  auto initiate(Make make, Deliver deliver, Token&& token) {
    return asio_detail::net::async_initiate<Token, Signature>(
        [runs = runs_](auto handler, Make made, Deliver delivered) {
          asio_detail::start_run<gentle>(runs, std::move(handler), std::move(made),
                                         std::move(delivered));
        },
        token, std::move(make), std::move(deliver));
  }

 private:
  struct Wait {
    Wait(const executor_type& executor, int fd, std::function<void()> call)
        : descriptor(executor, fd), ready(std::move(call)) {}
    asio_detail::net::posix::stream_descriptor descriptor;
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
    void operator()(Handler& handler, asio_detail::AsioEnd<T>& end) const {
      if constexpr (plain) {
        handler(end.failed, end.result ? std::move(*end.result) : T{});
      } else {
        handler(end.failed, std::move(end.result));
      }
    }
  };
  template <typename>
  struct ResultOf;
  template <typename T>
  struct ResultOf<Task<T>> : Result<T> {};

  std::unordered_map<int, std::shared_ptr<Wait>> waits_;
  std::shared_ptr<asio_detail::AsioRuns> runs_;
};

template <>
struct AsioExecutor::Result<void> {
  using Signature = void(std::exception_ptr);
  // Calls the handler of a task that has no result.
  template <typename Handler>
  void operator()(Handler& handler, asio_detail::AsioEnd<bool>& end) const {
    handler(end.failed);
  }
};

}  // namespace WEFT_ASIO_NAMESPACE
}  // namespace weft
