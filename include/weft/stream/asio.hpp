// A weft::stream::Stream as a stream of Asio: AsyncReadStream and AsyncWriteStream, so that
// asio::async_read, async_read_until, async_write, and what is built on them, such as Beast's HTTP,
// run over RDMA:
//
//   asio::io_context context;
//   weft::AsioListener listener(context.get_executor(), {"", 7174});
//   listener.async_accept([](asio::error_code failed, weft::AsioStream peer) { … });
//
//   weft::AsioStream stream(context.get_executor());
//   co_await stream.async_connect({"192.0.2.1", 7174}, asio::use_awaitable);
//   co_await asio::async_write(stream, asio::buffer("hello"), asio::use_awaitable);
//
// All completion tokens of Asio work, and its cancellation slots from Asio 1.20 on. Needs Asio to
// be installed. With WEFT_USE_BOOST_ASIO defined it uses Boost's, and Beast's websockets run on it
// as well; do not mix both in one file.
#pragma once

#include <unistd.h>

#if defined(WEFT_USE_BOOST_ASIO) && __has_include(<boost/beast/core/role.hpp>)
#include <boost/beast/core/role.hpp>
#define WEFT_ASIO_BEAST
#endif

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "weft/deadline.hpp"
#include "weft/error.hpp"
#include "weft/handle.hpp"
#include "weft/stream.hpp"
#include "weft/stream/asio_operations.hpp"

namespace weft {
inline namespace WEFT_ASIO_NAMESPACE {

// Not thread-safe, as Asio's own streams are not; a receiving and a sending operation may be under
// way at a time, and more wait for those before them. Operations that wait when it is destroyed end
// with operation_aborted. The bytes of a read are those that are there: it does not wait for more.
class AsioStream {
 public:
  using executor_type = asio_detail::net::any_io_executor;

  // `options`: of the stream. Throws Error(EINVAL).
  explicit AsioStream(const executor_type& executor, const stream::Options& options = {})
      : AsioStream(executor, stream::Stream(options)) {}
  // Takes over a stream, which may still be connecting.
  AsioStream(const executor_type& executor, stream::Stream stream)
      : core_(std::make_shared<asio_detail::AsioStreamCore>(executor, std::move(stream))) {}
  AsioStream(AsioStream&&) noexcept = default;
  AsioStream& operator=(AsioStream&& other) noexcept {
    if (this == &other) return *this;
    if (core_) core_->abandon();
    core_ = std::move(other.core_);
    return *this;
  }
  // Closes the stream, and waits for at most Options::linger.
  ~AsioStream() {
    if (core_) core_->abandon();
  }

  // The executor that runs the handlers which have none of their own.
  [[nodiscard]] executor_type get_executor() const { return core_->executor(); }
  // For everything that needs no executor: options, addresses, finish(), close(), statistics.
  // Valid as long as this object.
  [[nodiscard]] stream::Stream& stream() { return core_->stream(); }
  // Ends all operations that wait, with operation_aborted.
  void cancel() { core_->cancel(0); }

  // Signature of `token`: void(error_code). The name of a host is looked up by a thread of the
  // library.
  template <typename Token>
  auto async_connect(const stream::Address& peer, Token&& token) {
    return asio_detail::net::async_initiate<Token, void(asio_detail::AsioError)>(
        [](auto handler, const auto& core, const stream::Address& address) {
          using Handler = decltype(handler);
          start<asio_detail::AsioConnect<Handler>>(core, Core::Queue::connect, std::move(handler),
                                                   address);
        },
        token, core_.get(), peer);
  }

  // Signature of `token`: void(error_code, size_t). The end of the stream is asio::error::eof. The
  // buffers must stay valid until the handler is called.
  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return transfer<std::byte, Token>(Core::Queue::receive, buffers, token);
  }
  // The same for sending; a stream that has failed is the error of its errno.
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return transfer<const std::byte, Token>(Core::Queue::send, buffers, token);
  }

  // Wait: SyncReadStream and SyncWriteStream. The forms without `failed` throw Asio's system_error.
  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers, asio_detail::AsioError& failed) {
    return transfer_now<std::byte>(buffers, failed);
  }
  // Sends at least one byte, and returns how many.
  template <typename Buffers>
  std::size_t write_some(const Buffers& buffers, asio_detail::AsioError& failed) {
    return transfer_now<const std::byte>(buffers, failed);
  }
  // Receives at least one byte; throws at the end of the stream.
  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers) {
    asio_detail::AsioError failed;
    const std::size_t bytes = read_some(buffers, failed);
    if (failed) throw asio_detail::AsioException(failed, "read_some");
    return bytes;
  }
  // Sends at least one byte; throws where the stream has failed.
  template <typename Buffers>
  std::size_t write_some(const Buffers& buffers) {
    asio_detail::AsioError failed;
    const std::size_t bytes = write_some(buffers, failed);
    if (failed) throw asio_detail::AsioException(failed, "write_some");
    return bytes;
  }

 private:
  using Core = asio_detail::AsioStreamCore;

  template <typename Operation, typename Handler, typename Argument>
  static void start(const std::shared_ptr<Core>& core, Core::Queue queue, Handler handler,
                    const Argument& argument) {
#if WEFT_ASIO_VERSION >= 102000
    auto slot = asio_detail::net::get_associated_cancellation_slot(handler);
#endif
    const std::uint64_t number = core->start(
        queue, std::make_unique<Operation>(std::move(handler), core->executor(), argument));
    // The handler of an operation that need not wait is in its queue already.
    static_cast<void>(number);
#if WEFT_ASIO_VERSION >= 102000
    if (number == 0 || !slot.is_connected()) return;
    slot.assign([weak = std::weak_ptr(core), number](asio_detail::net::cancellation_type type) {
      if (type == asio_detail::net::cancellation_type::none) return;
      if (const auto waiting = weak.lock()) waiting->cancel(number);
    });
#endif
  }

  template <typename Byte, typename Token, typename Buffers>
  auto transfer(Core::Queue queue, const Buffers& buffers, std::remove_reference_t<Token>& token) {
    return asio_detail::net::async_initiate<Token, void(asio_detail::AsioError, std::size_t)>(
        [](auto handler, const auto& core, Core::Queue direction, const Buffers& pieces) {
          using Handler = decltype(handler);
          start<asio_detail::AsioTransfer<Byte, Handler, Buffers>>(core, direction,
                                                                   std::move(handler), pieces);
        },
        token, core_.get(), queue, buffers);
  }

  template <typename Byte, typename Buffers>
  std::size_t transfer_now(const Buffers& buffers, asio_detail::AsioError& failed) {
    const auto outcome = asio_detail::transfer_some(
        stream(), asio_detail::AsioPieces<Byte>(buffers), Deadline::never());
    failed = asio_detail::asio_error(outcome);
    return outcome.bytes;
  }

  weft::detail::Held<std::shared_ptr<Core>, "weft::AsioStream"> core_;
};

// Accepts streams of weft::stream. Not thread-safe. Must be destroyed before its execution context,
// as Asio's own objects.
class AsioListener {
 public:
  using executor_type = asio_detail::net::any_io_executor;

  // As stream::Listener, and begins to listen. Throws Error.
  AsioListener(const executor_type& executor, const stream::Address& address,
               const stream::Options& options = {})
      : core_(std::make_shared<Core>(executor, address, options)) {}
  AsioListener(AsioListener&&) noexcept = default;
  AsioListener& operator=(AsioListener&& other) noexcept {
    if (core_ && this != &other) cancel();
    core_ = std::move(other.core_);
    return *this;
  }
  ~AsioListener() {
    if (core_) cancel();
  }

  // The executor that runs the handlers which have none of their own.
  [[nodiscard]] executor_type get_executor() const { return core_->readable.get_executor(); }
  // Valid as long as this object.
  [[nodiscard]] stream::Listener& listener() { return core_->listener; }
  // The port that it is bound to; the one that was chosen where 0 was asked for.
  [[nodiscard]] std::uint16_t port() const { return core_->listener.port(); }
  // Ends all operations that wait, with operation_aborted.
  void cancel() {
    asio_detail::AsioError failed;
    core_->readable.cancel(failed);
  }

  // Signature of `token`: void(error_code, AsioStream). The stream may still be connecting; its
  // operations wait for that.
  template <typename Token>
  auto async_accept(Token&& token) {
    return asio_detail::net::async_compose<Token, void(asio_detail::AsioError, AsioStream)>(
        Accept{core_.get()}, token, core_->readable);
  }

 private:
  struct Core {
    Core(const executor_type& executor, const stream::Address& address,
         const stream::Options& options)
        : listener(address, options), readable(executor) {
      listener.listen();
      const int copy = ::dup(listener.fd());
      if (copy < 0) throw Error(errno, "a listener has no descriptor to wait on");
      readable.assign(copy);
    }

    stream::Listener listener;
    asio_detail::net::posix::stream_descriptor readable;  // a copy of the listener's
  };

  struct Accept {
    std::shared_ptr<Core> core;
    bool begun = false;

    template <typename Self>
    void operator()(Self& self, asio_detail::AsioError failed = {}) {
      if (std::exchange(begun, true)) {
        if (failed) return self.complete(failed, none());
        try {
          if (auto request = core->listener.next(Deadline::now())) {
            return self.complete({}, AsioStream(executor(), std::move(*request).accept()));
          }
        } catch (const Error& error) {
          return self.complete(asio_detail::asio_error(error.error_number()), none());
        }
      }
      // Evaluated before `self`, which has this object, is moved.
      auto& readable = core->readable;
      readable.async_wait(asio_detail::net::posix::descriptor_base::wait_read, std::move(self));
    }

    [[nodiscard]] executor_type executor() const { return core->readable.get_executor(); }
    // A stream that was never connected, for a handler that gets an error.
    [[nodiscard]] AsioStream none() const { return AsioStream(executor()); }
  };

  weft::detail::Held<std::shared_ptr<Core>, "weft::AsioListener"> core_;
};

// --- How Boost.Beast closes a stream: it finds these functions by the type of their argument, so
// that boost::beast::websocket::stream<weft::AsioStream> needs nothing else.
#ifdef WEFT_ASIO_BEAST
namespace asio_detail {

// Ends the sending direction; the peer reads the end behind all bytes. A peer that is disconnected
// needs no end.
inline AsioError finish_sending(AsioStream& stream) {
  try {
    stream.stream().finish();
  } catch (const Error& error) {
    if (error.error_number() != ENOTCONN) return asio_error(error.error_number());
  }
  return {};
}

// Reads until the end of the stream, and throws the bytes away. Then both sides have sent their
// last byte: the server ends its direction first, as RFC 6455 §7.1.1 has it, and the client when it
// has read that end.
struct BeastTeardown {
  using Rest = std::array<std::byte, 512>;

  explicit BeastTeardown(boost::beast::role_type is, AsioStream& of) : role(is), stream(&of) {}

  template <typename Self>
  void operator()(Self& self, AsioError failed = {}, std::size_t = 0) {
    if (!std::exchange(begun, true)) {
      // If this fails, the read fails as well; a handler must not be called from here.
      if (role == boost::beast::role_type::server) static_cast<void>(finish_sending(*stream));
    }
    if (!failed) {
      // Evaluated before `self`, which has this object, is moved.
      const auto into = boost::asio::buffer(*rest);
      AsioStream& of = *stream;
      of.async_read_some(into, std::move(self));
      return;
    }
    self.complete(end_of(failed));
  }

  // What the peer's end, or a failure, means for the result.
  [[nodiscard]] AsioError end_of(const AsioError& failed) const {
    if (failed != net::error::eof) return failed;
    return role == boost::beast::role_type::client ? finish_sending(*stream) : AsioError();
  }

  boost::beast::role_type role;
  AsioStream* stream;
  bool begun = false;
  std::unique_ptr<Rest> rest = std::make_unique<Rest>();
};

}  // namespace asio_detail

// Ends both directions in order, without blocking. Signature of the handler: void(error_code).
template <typename Handler>
void async_teardown(boost::beast::role_type role, AsioStream& stream, Handler&& handler) {
  asio_detail::net::async_compose<Handler, void(asio_detail::AsioError)>(
      asio_detail::BeastTeardown(role, stream), handler, stream);
}

// The same, and waits for it.
inline void teardown(boost::beast::role_type role, AsioStream& stream,
                     asio_detail::AsioError& failed) {
  const asio_detail::BeastTeardown steps(role, stream);
  failed = {};
  if (role == boost::beast::role_type::server) failed = asio_detail::finish_sending(stream);
  while (!failed) stream.read_some(boost::asio::buffer(*steps.rest), failed);
  failed = steps.end_of(failed);
}

// Ends the stream at once: Beast's timeouts call this. Operations that wait end with
// operation_aborted.
inline void beast_close_socket(AsioStream& stream) {
  stream.cancel();
  stream.stream().abort();
}
#endif

}  // namespace WEFT_ASIO_NAMESPACE
}  // namespace weft

// The same classes in the namespace of their layer, where the other layers have theirs.
namespace weft::stream {
inline namespace WEFT_ASIO_NAMESPACE {
using weft::AsioListener;
using weft::AsioStream;
}  // namespace WEFT_ASIO_NAMESPACE
}  // namespace weft::stream
