// Requests of queue pairs as the asynchronous operations of Asio:
//
//   weft::verbs::Operations operations(verbs_context);
//   weft::verbs::AsioOperations async(io_context.get_executor(), operations);
//   const auto sent = co_await async.async_send(queue_pair, text.keep(), asio::use_awaitable);
//
// All completion tokens of Asio work, and its cancellation slots from Asio 1.20 on. The operations
// are the calls of weft::verbs::AsyncOperations with `async_` before their names, without a
// deadline. Needs Asio to be installed; with WEFT_USE_BOOST_ASIO defined it uses Boost's.
#pragma once

#include <infiniband/verbs.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "weft/asio.hpp"
#include "weft/deadline.hpp"
#include "weft/handle.hpp"
#include "weft/verbs.hpp"

namespace weft::verbs {
inline namespace WEFT_ASIO_NAMESPACE {

// The signature of each `token` is void(error_code, Completion). A request that fails is EIO, or
// ECONNABORTED if it was flushed, and Completion::status() names the reason; where there is no
// completion that is IBV_WC_GENERAL_ERR. After a cancellation, or when this object is destroyed,
// the operation ends with operation_aborted; a request that was posted goes on, and Operations
// keeps its memory until it has completed.
//
// Not thread-safe. Must be destroyed before its execution context, and before the Operations.
class AsioOperations {
 public:
  using executor_type = AsioExecutor::executor_type;

  // The operations must outlive this object.
  AsioOperations(const executor_type& executor, Operations& operations)
      : core_(std::make_unique<Core>(executor, operations)) {}

  // The executor that runs the handlers which have none of their own.
  [[nodiscard]] executor_type get_executor() const { return core_->executor.get_executor(); }
  // Ends all operations that wait, as their cancellation slots do.
  void cancel() { core_->executor.cancel(); }

  // Each posts its request; if the queue is full, as soon as there is room. The queue pair must
  // live until the handler is called.
  template <typename Token>
  auto async_send(const QueuePair& queue_pair, KeptSlice from, Token&& token) {
    return request(
        [&queue_pair, from = std::move(from)](const AsyncOperations& async, std::stop_token stop) {
          return async.send(queue_pair, from, Deadline::never(), std::move(stop));
        },
        token);
  }
  // Operations::send_with_immediate().
  template <typename Token>
  auto async_send_with_immediate(const QueuePair& queue_pair, KeptSlice from,
                                 std::uint32_t immediate, Token&& token) {
    return request(
        [&queue_pair, from = std::move(from), immediate](const AsyncOperations& async,
                                                         std::stop_token stop) {
          return async.send_with_immediate(queue_pair, from, immediate, Deadline::never(),
                                           std::move(stop));
        },
        token);
  }
  // Operations::receive().
  template <typename Token>
  auto async_receive(const QueuePair& queue_pair, KeptSlice into, Token&& token) {
    return request(
        [&queue_pair, into = std::move(into)](const AsyncOperations& async, std::stop_token stop) {
          return async.receive(queue_pair, into, Deadline::never(), std::move(stop));
        },
        token);
  }
  // Operations::write().
  template <typename Token>
  auto async_write(const QueuePair& queue_pair, KeptSlice from, const RemoteSlice& to,
                   Token&& token) {
    return request(
        [&queue_pair, from = std::move(from), to](const AsyncOperations& async,
                                                  std::stop_token stop) {
          return async.write(queue_pair, from, to, Deadline::never(), std::move(stop));
        },
        token);
  }
  // Operations::write_with_immediate().
  template <typename Token>
  auto async_write_with_immediate(const QueuePair& queue_pair, KeptSlice from,
                                  const RemoteSlice& to, std::uint32_t immediate, Token&& token) {
    return request(
        [&queue_pair, from = std::move(from), to, immediate](const AsyncOperations& async,
                                                             std::stop_token stop) {
          return async.write_with_immediate(queue_pair, from, to, immediate, Deadline::never(),
                                            std::move(stop));
        },
        token);
  }
  // Operations::read().
  template <typename Token>
  auto async_read(const QueuePair& queue_pair, KeptSlice into, const RemoteSlice& from,
                  Token&& token) {
    return request(
        [&queue_pair, into = std::move(into), from](const AsyncOperations& async,
                                                    std::stop_token stop) {
          return async.read(queue_pair, into, from, Deadline::never(), std::move(stop));
        },
        token);
  }
  // Operations::fetch_and_add().
  template <typename Token>
  auto async_fetch_and_add(const QueuePair& queue_pair, KeptSlice before, const RemoteSlice& target,
                           std::uint64_t addend, Token&& token) {
    return request(
        [&queue_pair, before = std::move(before), target, addend](const AsyncOperations& async,
                                                                  std::stop_token stop) {
          return async.fetch_and_add(queue_pair, before, target, addend, Deadline::never(),
                                     std::move(stop));
        },
        token);
  }
  // Operations::compare_and_swap().
  template <typename Token>
  auto async_compare_and_swap(const QueuePair& queue_pair, KeptSlice before,
                              const RemoteSlice& target, std::uint64_t expected,
                              std::uint64_t desired, Token&& token) {
    return request(
        [&queue_pair, before = std::move(before), target, expected, desired](
            const AsyncOperations& async, std::stop_token stop) {
          return async.compare_and_swap(queue_pair, before, target, expected, desired,
                                        Deadline::never(), std::move(stop));
        },
        token);
  }
  // Waits for a request that Operations has posted.
  template <typename Token>
  auto async_wait(Operation operation, Token&& token) {
    return request(
        [operation = std::move(operation)](const AsyncOperations& async, std::stop_token stop) {
          return async.wait(operation, Deadline::never(), std::move(stop));
        },
        token);
  }

 private:
  using Code = asio_detail::AsioError;

  struct Core {
    Core(const executor_type& from, Operations& of) : executor(from), operations(&of) {}
    AsioExecutor executor;
    Operations* operations;
  };

  template <typename Call, typename Token>
  auto request(Call call, Token&& token) {
    return core_->executor.template initiate<void(Code, Completion)>(
        [core = core_.get().get(), call = std::move(call)](std::stop_token stop) {
          return call(AsyncOperations(core->executor, *core->operations), std::move(stop));
        },
        [](auto& handler, const asio_detail::AsioEnd<std::optional<Completion>>& end) {
          const auto found = end.result.value_or(std::nullopt);
          if (found) return handler(code_of(*found), *found);
          const Code failed = end.error();
          handler(failed ? failed : asio_detail::asio_error(end.stopped ? ECANCELED : ECONNABORTED),
                  none());
        },
        token);
  }
  [[nodiscard]] static Code code_of(const Completion& completion) {
    if (completion.ok()) return {};
    return asio_detail::asio_error(completion.status() == IBV_WC_WR_FLUSH_ERR ? ECONNABORTED : EIO);
  }
  [[nodiscard]] static Completion none() {
    ibv_wc raw{};
    raw.status = IBV_WC_GENERAL_ERR;
    return std::bit_cast<Completion>(raw);
  }

  weft::detail::Held<std::unique_ptr<Core>, "weft::verbs::AsioOperations"> core_;
};

}  // namespace WEFT_ASIO_NAMESPACE
}  // namespace weft::verbs
