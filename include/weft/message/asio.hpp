// Messages with the asynchronous operations of Asio:
//
//   asio::io_context context;
//   weft::message::AsioLoop loop(context.get_executor());
//   weft::message::AsioListener listener(loop, {"", 7174});
//   asio::co_spawn(context, [&]() -> asio::awaitable<void> {
//     auto peer = co_await listener.async_accept(asio::use_awaitable);
//     const auto got = co_await peer.async_receive(asio::use_awaitable);
//     co_await peer.async_send(asio::buffer(got->bytes()), {}, asio::use_awaitable);
//   }, asio::detached);
//   context.run();
//
// All completion tokens of Asio work, and its cancellation slots from Asio 1.20 on. Needs Asio to
// be installed; with WEFT_USE_BOOST_ASIO defined it uses Boost's.
#pragma once

#include <unistd.h>

#ifdef WEFT_USE_BOOST_ASIO
#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#else
#include <asio/buffer.hpp>
#include <asio/posix/stream_descriptor.hpp>
#endif

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

#include "weft/asio.hpp"
#include "weft/deadline.hpp"
#include "weft/error.hpp"
#include "weft/handle.hpp"
#include "weft/message.hpp"

namespace weft::message {
inline namespace WEFT_ASIO_NAMESPACE {
namespace asio_detail {

using namespace weft::asio_detail;

// An EventLoop whose steps an executor of Asio makes.
class LoopDriver : public std::enable_shared_from_this<LoopDriver> {
 public:
  LoopDriver(const net::any_io_executor& from, const Limits& limits, verbs::Backend backend)
      : executor(std::in_place, from), loop(std::in_place, limits, backend), readable_(from) {
    const int copy = ::dup(loop->fd());
    if (copy < 0) throw Error(errno, "an event loop has no descriptor to wait on");
    readable_.assign(copy);
  }

  // Makes steps as long as there are connections or listeners. In the executor.
  void drive() {
    if (waiting_ || !loop || (loop->connections() == 0 && listeners == 0)) return;
    waiting_ = true;
    readable_.async_wait(net::posix::descriptor_base::wait_read,
                         [self = this->shared_from_this()](const AsioError& failed) {
                           self->waiting_ = false;
                           if (!failed) self->step();
                         });
  }
  // For calls from anywhere.
  void drive_soon() {
    net::post(readable_.get_executor(), [self = this->shared_from_this()] { self->drive(); });
  }
  // Ends all operations and all connections.
  void close() {
    executor.reset();
    // A callback of the loop may be the one that does this, so the loop is destroyed last.
    const auto destroyed = std::exchange(loop, std::nullopt);
    AsioError failed;
    readable_.close(failed);
  }

  std::optional<AsioExecutor> executor;
  std::optional<EventLoop> loop;
  std::size_t listeners = 0;

 private:
  void step() {
    if (!loop) return;
    // A callback may throw, and the steps go on behind that.
    const struct Next {
      LoopDriver* self;
      ~Next() { self->drive(); }
    } next{this};
    loop->step(Deadline::now());
  }

  net::posix::stream_descriptor readable_;  // a copy of the loop's
  bool waiting_ = false;
};

}  // namespace asio_detail

// A connection of an AsioLoop: cheap to copy, and all copies refer to the same connection. The loop
// keeps the connection until it has ended. In the loop's executor, as everything here.
class AsioConnection {
 public:
  // A handle of no connection.
  AsioConnection() = default;
  // Whether it is the handle of a connection, which may have ended.
  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(connection_); }
  // For everything that needs no executor: disconnect(), statistics(), buffers.
  [[nodiscard]] Connection& connection() { return connection_; }

  // Sends one message; while too much waits to be sent, it waits as well. Ends when the message is
  // sent or, with SendOptions::confirm, delivered. The bytes must stay valid until the handler is
  // called. Signature of `token`: void(error_code, Sending). After a cancellation a message that
  // was accepted for sending is still sent, and its Sending shows how far it has come.
  template <typename Token>
  auto async_send(const asio_detail::net::const_buffer& bytes, const SendOptions& options,
                  Token&& token) {
    const std::span from(static_cast<const std::byte*>(bytes.data()), bytes.size());
    return send([from, options](Connection& to) { return to.send(from, options); }, token);
  }
  // The same from a buffer of the loop's pool, without a copy; see Connection::allocate().
  template <typename Token>
  auto async_send(Buffer buffer, const SendOptions& options, Token&& token) {
    auto shared = std::make_shared<Buffer>(std::move(buffer));
    return send([shared, options](Connection& to) { return to.send(*shared, options); }, token);
  }
  // Receives the next message. Signature of `token`: void(error_code, std::optional<Received>). The
  // end of the connection is eof.
  template <typename Token>
  auto async_receive(Token&& token) {
    return driver().executor->template initiate<void(Code, std::optional<Received>)>(
        [connection = connection_](std::stop_token stop) {
          return receive(connection, std::move(stop));
        },
        [](auto& handler, asio_detail::AsioEnd<std::optional<Received>>& end) {
          const bool found = end.result && *end.result;
          Code failed = end.error();
          if (!failed && !found) failed = asio_detail::net::error::eof;
          if (!found && end.stopped) failed = asio_detail::net::error::operation_aborted;
          handler(failed, found ? std::move(*end.result) : std::nullopt);
        },
        token);
  }

 private:
  friend class AsioLoop;
  friend class AsioListener;
  using Code = asio_detail::AsioError;
  using Driver = asio_detail::LoopDriver;

  AsioConnection(std::weak_ptr<Driver> driver, Connection connection)
      : driver_(std::move(driver)), connection_(std::move(connection)) {}

  // Throws Error(ENOTCONN) for a handle of no connection, and after the end of the loop.
  [[nodiscard]] Driver& driver() const {
    const auto found = driver_.lock();
    if (!found || !found->loop) throw Error(ENOTCONN, "the connection's loop is destroyed");
    return *found;  // the AsioLoop keeps it
  }

  static Task<std::optional<Received>> receive(Connection connection, std::stop_token stop) {
    co_return co_await connection.receive(Deadline::never(), std::move(stop));
  }

  template <typename Call>
  static Task<Sending> send(Connection connection, Call call, std::stop_token stop) {
    Sending sending = call(connection);
    while (!sending && sending.error_number() == EAGAIN) {
      const bool writable = co_await connection.until_writable(Deadline::never(), stop);
      if (!writable) {
        throw Error(stop.stop_requested() ? ECANCELED : ENOTCONN, "the message was not sent");
      }
      sending = call(connection);
    }
    if (sending) static_cast<void>(co_await sending.settled(Deadline::never(), stop));
    co_return sending;
  }
  template <typename Call, typename Token>
  auto send(Call call, Token&& token) {
    return driver().executor->template initiate<void(Code, Sending)>(
        [connection = connection_, call = std::move(call)](std::stop_token stop) {
          return send(connection, call, std::move(stop));
        },
        [](auto& handler, const asio_detail::AsioEnd<Sending>& end) {
          const Sending sending = end.result.value_or(Sending());
          Code failed = end.error();
          if (!failed && sending.status() == Status::failed) {
            failed = asio_detail::asio_error(sending.error_number());
          } else if (!failed && !sending.is_settled()) {
            failed = asio_detail::net::error::operation_aborted;
          }
          handler(failed, sending);
        },
        token);
  }

  // Waits for a connection that is being established, and ends it where the wait is cancelled.
  static Task<AsioConnection> established(std::weak_ptr<Driver> driver, Connection connection,
                                          std::stop_token stop) {
    Unclaimed unclaimed(connection);
    co_await connection.established(Deadline::never(), std::move(stop));
    unclaimed.connection = Connection();
    co_return AsioConnection(std::move(driver), std::move(connection));
  }
  // Holds a connection until its owner gets it, and closes it if the task is destroyed before.
  struct Unclaimed {
    Connection connection;
    explicit Unclaimed(Connection begun) : connection(std::move(begun)) {}
    Unclaimed(const Unclaimed&) = delete;
    Unclaimed& operator=(const Unclaimed&) = delete;
    ~Unclaimed() {
      if (connection) connection.disconnect();
    }
  };
  struct Give {
    template <typename Handler>
    void operator()(Handler& handler, const asio_detail::AsioEnd<AsioConnection>& end) const {
      handler(end.error(), end.result.value_or(AsioConnection()));
    }
  };

  std::weak_ptr<Driver> driver_;
  Connection connection_;
};

// An event loop of messages within an execution context of Asio, which makes its steps as long as
// it has connections or listeners; io_context::run() does not return before. Not thread-safe: if
// several threads run the io_context, use a strand. Must be destroyed before its execution context.
// Operations that wait when it is destroyed end with operation_aborted.
class AsioLoop {
 public:
  using executor_type = AsioExecutor::executor_type;

  // As EventLoop. Throws Error.
  explicit AsioLoop(const executor_type& executor, const Limits& limits = {},
                    verbs::Backend backend = verbs::default_backend())
      : driver_(std::make_shared<asio_detail::LoopDriver>(executor, limits, backend)) {}
  AsioLoop(AsioLoop&&) noexcept = default;
  AsioLoop& operator=(AsioLoop&& other) noexcept {
    if (driver_ && this != &other) driver_->close();
    driver_ = std::move(other.driver_);
    return *this;
  }
  ~AsioLoop() {
    if (driver_) driver_->close();
  }

  // The executor that runs the handlers which have none of their own.
  [[nodiscard]] executor_type get_executor() const { return driver_->executor->get_executor(); }
  // For callbacks, timers and limits. Its step() and run() must not be called. Valid as long as
  // this object.
  [[nodiscard]] EventLoop& loop() {
    driver_->drive_soon();  // for what the caller begins
    return *driver_->loop;
  }
  // Ends all operations that wait, as their cancellation slots do.
  void cancel() { driver_->executor->cancel(); }

  // Connects, within Options::connect_timeout. Signature of `token`: void(error_code,
  // AsioConnection). What the options refer to must live until the handler is called.
  template <typename Token>
  auto async_connect(const Address& peer, const Options& options, Token&& token) {
    return driver_->executor->template initiate<void(Code, AsioConnection)>(
        [weak = std::weak_ptr(driver_.get()), peer, options](std::stop_token stop) {
          const auto driver = weak.lock();
          Connection begun = driver->loop->connect(peer, {}, options);
          driver->drive();
          return AsioConnection::established(weak, std::move(begun), std::move(stop));
        },
        AsioConnection::Give(), token);
  }
  // With the default options.
  template <typename Token>
  auto async_connect(const Address& peer, Token&& token) {
    return async_connect(peer, Options(), std::forward<Token>(token));
  }

 private:
  friend class AsioListener;
  using Code = asio_detail::AsioError;
  weft::detail::Held<std::shared_ptr<asio_detail::LoopDriver>, "weft::message::AsioLoop"> driver_;
};

// Accepts connections for an AsioLoop. Must be destroyed before the execution context. Operations
// that wait when it is destroyed end with operation_aborted.
class AsioListener {
 public:
  using executor_type = AsioExecutor::executor_type;

  // Listens, as EventLoop::listen() does. Throws Error.
  AsioListener(AsioLoop& loop, const Address& address, int backlog = 0)
      : core_(std::make_unique<Core>(loop.driver_.get(), loop.get_executor(), address, backlog)) {}

  // The executor that runs the handlers which have none of their own.
  [[nodiscard]] executor_type get_executor() const { return core_->executor.get_executor(); }
  // The port that it listens on; the one that was chosen where 0 was asked for.
  [[nodiscard]] std::uint16_t port() const { return core_->acceptor.port(); }
  // Ends all operations that wait, as their cancellation slots do.
  void cancel() { core_->executor.cancel(); }

  // Accepts the next peer, and waits until the connection is established. Signature of `token`:
  // void(error_code, AsioConnection). An error may be that of one peer, so a server goes on. What
  // the options refer to must live until the handler is called.
  template <typename Token>
  auto async_accept(const Options& options, Token&& token) {
    return core_->executor.template initiate<void(Code, AsioConnection)>(
        [core = core_.get().get(), options](std::stop_token stop) {
          return accept(*core, options, std::move(stop));
        },
        AsioConnection::Give(), token);
  }
  // With the default options.
  template <typename Token>
  auto async_accept(Token&& token) {
    return async_accept(Options(), std::forward<Token>(token));
  }

 private:
  using Code = asio_detail::AsioError;

  struct Core {
    Core(const std::shared_ptr<asio_detail::LoopDriver>& of, const executor_type& from,
         const Address& address, int backlog)
        : driver(of), acceptor(*of->loop, address, backlog), executor(from) {
      ++of->listeners;
      of->drive_soon();
    }
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;
    ~Core() {
      const auto counted = driver.lock();
      if (!counted) return;
      --counted->listeners;
      if (counted->loop) counted->loop->wake();  // so that the steps end
    }

    std::weak_ptr<asio_detail::LoopDriver> driver;
    Acceptor acceptor;
    AsioExecutor executor;  // destroyed first, and with it the tasks that use the acceptor
  };

  static Task<AsioConnection> accept(Core& core, Options options, std::stop_token stop) {
    auto request = co_await core.acceptor.next(Deadline::never(), stop);
    if (!request) throw Error(ECANCELED, "no peer has asked to connect");
    Connection begun = request->accept({}, options);
    co_return co_await AsioConnection::established(core.driver, std::move(begun), std::move(stop));
  }

  weft::detail::Held<std::unique_ptr<Core>, "weft::message::AsioListener"> core_;
};

}  // namespace WEFT_ASIO_NAMESPACE
}  // namespace weft::message
