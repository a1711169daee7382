// Connections with the asynchronous operations of Asio:
//
//   asio::io_context context;
//   weft::connection::AsioListener listener(context.get_executor(), {"", 7174});
//   listener.async_accept([](asio::error_code failed, AsioConnection peer) { … });
//
//   weft::connection::AsioConnection peer(context.get_executor());
//   co_await peer.async_connect({"192.0.2.1", 7174}, asio::use_awaitable);
//   const auto text = peer.connection().allocate(64);
//   const auto sent = co_await peer.async_send(text.keep(), asio::use_awaitable);
//
// All completion tokens of Asio work, and its cancellation slots from Asio 1.20 on. The operations
// are the calls of weft::connection::Async with `async_` before their names, without a deadline:
// cancellation takes its place, and means what a stop means there. Needs Asio to be installed; with
// WEFT_USE_BOOST_ASIO defined it uses Boost's.
#pragma once

#include <cerrno>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "weft/asio.hpp"
#include "weft/connection.hpp"
#include "weft/deadline.hpp"
#include "weft/error.hpp"
#include "weft/handle.hpp"

namespace weft::connection {
inline namespace WEFT_ASIO_NAMESPACE {

// Not thread-safe. Must be destroyed before its execution context. Operations that wait when it is
// destroyed end with operation_aborted; the connection is disconnected then.
class AsioConnection {
 public:
  using executor_type = AsioExecutor::executor_type;

  // A connection that is not connected yet.
  explicit AsioConnection(const executor_type& executor)
      : core_(std::make_unique<Core>(executor)) {}
  // Takes over an established connection.
  AsioConnection(const executor_type& executor, Connection connection) : AsioConnection(executor) {
    core_->connection.emplace(std::move(connection));
  }

  // The executor that runs the handlers which have none of their own.
  [[nodiscard]] executor_type get_executor() const { return core_->executor.get_executor(); }
  // For everything that needs no executor: buffers, receives, addresses, disconnect(). Valid as
  // long as this object. Throws Error(ENOTCONN) before the connection is established.
  [[nodiscard]] Connection& connection() const { return core_->established(); }
  // Ends all operations that wait, as their cancellation slots do.
  void cancel() { core_->executor.cancel(); }

  // Signature of `token`: void(error_code). What the options refer to must live until the handler
  // is called.
  template <typename Token>
  auto async_connect(const Address& peer, const Options& options, Token&& token) {
    return core_->executor.template initiate<void(Code)>(
        [core = core_.get().get(), peer, options](std::stop_token stop) {
          return connect(*core, peer, options, std::move(stop));
        },
        [](auto& handler, const auto& end) { handler(end.error()); }, token);
  }
  // With the default options.
  template <typename Token>
  auto async_connect(const Address& peer, Token&& token) {
    return async_connect(peer, Options(), std::forward<Token>(token));
  }

  // Post the request; if the queue is full, as soon as there is room. Signature of `token`:
  // void(error_code, Outcome). A request that fails is EIO, or ECONNABORTED if the connection has
  // ended first, and Outcome::status names the reason; where there is no outcome that is
  // IBV_WC_GENERAL_ERR. After a cancellation the request stays posted, and with a KeptSlice the
  // connection holds its memory. A slice is a LocalSlice or a KeptSlice.
  template <typename Slice, typename Token>
  requires std::same_as<Slice, LocalSlice> || std::same_as<Slice, KeptSlice>
  auto async_send(const Slice& from, Token&& token) {
    return request(
        [from](const Async& async, Connection& connection, std::stop_token stop) {
          return async.send(connection, from, Deadline::never(), std::move(stop));
        },
        token);
  }
  // Posts a receive, which takes the peer's next send.
  template <typename Slice, typename Token>
  requires std::same_as<Slice, LocalSlice> || std::same_as<Slice, KeptSlice>
  auto async_receive(const Slice& into, Token&& token) {
    return request(
        [into](const Async& async, Connection& connection, std::stop_token stop) {
          return async.receive(connection, into, Deadline::never(), std::move(stop));
        },
        token);
  }
  // An RDMA Write to an offset in the peer's buffer.
  template <typename Slice, typename Token>
  requires std::same_as<Slice, LocalSlice> || std::same_as<Slice, KeptSlice>
  auto async_write(const Slice& from, const RemoteBuffer& to, std::uint64_t offset_bytes,
                   Token&& token) {
    return request(
        [from, to, offset_bytes](const Async& async, Connection& connection, std::stop_token stop) {
          return async.write(connection, from, to, offset_bytes, Deadline::never(),
                             std::move(stop));
        },
        token);
  }
  // An RDMA Read from an offset in the peer's buffer.
  template <typename Slice, typename Token>
  requires std::same_as<Slice, LocalSlice> || std::same_as<Slice, KeptSlice>
  auto async_read(const Slice& into, const RemoteBuffer& from, std::uint64_t offset_bytes,
                  Token&& token) {
    return request(
        [into, from, offset_bytes](const Async& async, Connection& connection,
                                   std::stop_token stop) {
          return async.read(connection, into, from, offset_bytes, Deadline::never(),
                            std::move(stop));
        },
        token);
  }

  // Signature of `token`: void(error_code, Advertisement). The end of the connection is eof.
  template <typename Token>
  auto async_await_advertisement(Token&& token) {
    return core_->executor.template initiate<void(Code, Advertisement)>(
        [core = core_.get().get()](std::stop_token stop) {
          return Async(core->executor)
              .await_advertisement(core->established(), Deadline::never(), std::move(stop));
        },
        [](auto& handler, const asio_detail::AsioEnd<std::optional<Advertisement>>& end) {
          const auto found = end.result.value_or(std::nullopt);
          const Code ended = asio_detail::net::error::eof;
          handler(found ? Code() : Core::error_of(end, ended), found.value_or(Advertisement()));
        },
        token);
  }
  // Waits for the end of the connection, by either side. Signature of `token`: void(error_code).
  template <typename Token>
  auto async_await_disconnect(Token&& token) {
    return core_->executor.template initiate<void(Code)>(
        [core = core_.get().get()](std::stop_token stop) {
          return Async(core->executor)
              .await_disconnect(core->established(), Deadline::never(), std::move(stop));
        },
        [](auto& handler, const asio_detail::AsioEnd<bool>& end) {
          const bool ended = end.result.value_or(false);
          handler(ended ? Code() : Core::error_of(end, asio_detail::asio_error(ETIMEDOUT)));
        },
        token);
  }

 private:
  using Code = asio_detail::AsioError;

  struct Core {
    explicit Core(const executor_type& from) : executor(from) {}

    [[nodiscard]] Connection& established() {
      if (connection) return *connection;
      throw Error(ENOTCONN, "the connection is not established: use async_connect() first");
    }
    // Why an operation has ended without a result; `otherwise` if nothing else has ended it.
    template <typename Result>
    [[nodiscard]] static Code error_of(const asio_detail::AsioEnd<Result>& end,
                                       const Code& otherwise) {
      if (const Code failed = end.error()) return failed;
      return end.stopped ? asio_detail::asio_error(ECANCELED) : otherwise;
    }

    std::optional<Connection> connection;
    AsioExecutor executor;  // destroyed first, and with it the tasks that use the connection
  };

  static Task<> connect(Core& core, Address peer, Options options, std::stop_token stop) {
    if (core.connection) throw Error(EISCONN, "the connection is established already");
    const Async async(core.executor);
    core.connection.emplace(
        co_await async.connect(peer, Deadline::never(), options, {}, std::move(stop)));
  }

  template <typename Call, typename Token>
  auto request(Call call, Token&& token) {
    return core_->executor.template initiate<void(Code, Outcome)>(
        [core = core_.get().get(), call = std::move(call)](std::stop_token stop) {
          return call(Async(core->executor), core->established(), std::move(stop));
        },
        [](auto& handler, const asio_detail::AsioEnd<std::optional<Outcome>>& end) {
          const auto found = end.result.value_or(std::nullopt);
          if (found) return handler(code_of(*found), *found);
          handler(Core::error_of(end, asio_detail::asio_error(ECONNABORTED)),
                  Outcome{.status = IBV_WC_GENERAL_ERR});
        },
        token);
  }
  [[nodiscard]] static Code code_of(const Outcome& outcome) {
    if (outcome.ok()) return {};
    return asio_detail::asio_error(outcome.status == IBV_WC_WR_FLUSH_ERR ? ECONNABORTED : EIO);
  }

  weft::detail::Held<std::unique_ptr<Core>, "weft::connection::AsioConnection"> core_;
};

// Accepts connections. Not thread-safe. Must be destroyed before its execution context. Operations
// that wait when it is destroyed end with operation_aborted.
class AsioListener {
 public:
  using executor_type = AsioExecutor::executor_type;

  // As Listener. Throws Error.
  AsioListener(const executor_type& executor, const Address& address, const Options& options = {},
               int backlog = 0)
      : core_(std::make_unique<Core>(executor, address, options, backlog)) {}

  // The executor that runs the handlers which have none of their own.
  [[nodiscard]] executor_type get_executor() const { return core_->executor.get_executor(); }
  // Valid as long as this object.
  [[nodiscard]] Listener& listener() const { return core_->listener; }
  // The port that it listens on; the one that was chosen where 0 was asked for.
  [[nodiscard]] std::uint16_t port() const { return core_->listener.port(); }
  // Ends all operations that wait, as their cancellation slots do.
  void cancel() { core_->executor.cancel(); }

  // Accepts the next peer, and waits until the connection is established. Signature of `token`:
  // void(error_code, AsioConnection). An error may be that of one peer, so a server goes on.
  template <typename Token>
  auto async_accept(Token&& token) {
    return core_->executor.template initiate<void(Code, AsioConnection)>(
        [core = core_.get().get()](std::stop_token stop) {
          return Async(core->executor)
              .accept(core->listener, Deadline::never(), {}, std::move(stop));
        },
        Give{get_executor()}, token);
  }
  // Waits for the next request. Buffers can be allocated, and receives posted, before
  // async_accept() has it. Signature of `token`: void(error_code, std::optional<Request>).
  template <typename Token>
  auto async_next(Token&& token) {
    return core_->executor.template initiate<void(Code, std::optional<Request>)>(
        [core = core_.get().get()](std::stop_token stop) {
          return Async(core->executor).next(core->listener, Deadline::never(), std::move(stop));
        },
        [](auto& handler, asio_detail::AsioEnd<std::optional<Request>>& end) {
          const bool found = end.result && *end.result;
          const Code failed = end.error();
          handler(found || failed ? failed : asio_detail::asio_error(ECANCELED),
                  found ? std::move(*end.result) : std::nullopt);
        },
        token);
  }
  // Accepts a request of async_next(). What the greeting refers to must live until the handler is
  // called. Signature of `token`: void(error_code, AsioConnection).
  template <typename Token>
  auto async_accept(Request request, const Greeting& greeting, Token&& token) {
    return core_->executor.template initiate<void(Code, AsioConnection)>(
        [core = core_.get().get(), taken = std::move(request),
         greeting](std::stop_token stop) mutable {
          return Async(core->executor)
              .accept(std::move(taken), greeting, Deadline::never(), std::move(stop));
        },
        Give{get_executor()}, token);
  }

 private:
  using Code = asio_detail::AsioError;

  struct Core {
    Core(const executor_type& from, const Address& address, const Options& options, int backlog)
        : listener(address, options, backlog), executor(from) {}
    Listener listener;
    AsioExecutor executor;  // destroyed first, and with it the tasks that use the listener
  };
  // Calls a handler with the connection, or with one that was never established.
  struct Give {
    template <typename Handler>
    void operator()(Handler& handler, asio_detail::AsioEnd<Connection>& end) const {
      handler(end.error(), end.result ? AsioConnection(executor, std::move(*end.result))
                                      : AsioConnection(executor));
    }
    executor_type executor;
  };

  weft::detail::Held<std::unique_ptr<Core>, "weft::connection::AsioListener"> core_;
};

}  // namespace WEFT_ASIO_NAMESPACE
}  // namespace weft::connection
