// Listener and Request: the passive side, which accepts connections.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/message/connection.hpp"

namespace weft::message {

class EventLoop;

namespace detail {
class LoopCore;
struct PendingRequest;
}  // namespace detail

// A request of a peer to connect. It may be accepted or rejected in the callback, or later, and is
// empty from then on: weft/handle.hpp. If neither was done, it is rejected when it is destroyed.
class Request {
 public:
  WEFT_API Request(Request&&) noexcept;
  WEFT_API Request& operator=(Request&&) noexcept;
  WEFT_API ~Request();

  // The private data that the peer's application sent with the request. Valid until the request is
  // accepted, rejected or destroyed.
  [[nodiscard]] WEFT_API std::span<const std::byte> private_data() const;
  // The address that the peer connects from, "192.0.2.1:34567".
  [[nodiscard]] WEFT_API std::string peer_address() const;

  // Accepts the request; the callback `established` or `error` follows. Throws Error: ECANCELED if
  // the request's loop was destroyed.
  WEFT_API Connection accept(Handlers handlers, const Options& options = {});
  // Accepts the request for a connection of another loop, which calls its callbacks. So several
  // loops, each with its own thread, can share one listener. The handle may only be used in that
  // loop's thread.
  WEFT_API Connection accept_on(EventLoop& loop, Handlers handlers, const Options& options = {});
  // Rejects the request: the peer gets `error` with a Rejected, which has these bytes, at most
  // max_private_data_bytes. Throws Error: EINVAL for too many bytes.
  WEFT_API void reject(std::span<const std::byte> private_data = {});

 private:
  friend class detail::LoopCore;
  explicit Request(std::unique_ptr<detail::PendingRequest> pending);

  weft::detail::Held<std::unique_ptr<detail::PendingRequest>, "weft::message::Request"> pending_;
};

using RequestHandler = std::function<void(Request)>;

// The destructor closes the listener. Its connections, and requests that are neither accepted nor
// rejected yet, are not affected. To be used in the loop's thread.
class Listener {
 public:
  WEFT_API Listener(Listener&&) noexcept;
  WEFT_API Listener& operator=(Listener&&) noexcept;
  WEFT_API ~Listener();

  // The port that it listens on; the one that was chosen where 0 was asked for.
  [[nodiscard]] std::uint16_t port() const {
    check();
    return port_;
  }
  // Connections and pending requests that count against Limits::max_connections.
  [[nodiscard]] WEFT_API std::size_t connections() const;
  // Requests that were rejected before the handler saw them: malformed, without a handler, or
  // because of Limits::max_connections.
  [[nodiscard]] WEFT_API std::uint64_t turned_away() const;

 private:
  friend class EventLoop;
  Listener(std::weak_ptr<detail::LoopCore> core, std::uint64_t number, std::uint16_t port);
  // Numbers of listeners start at 1; 0 is an empty handle.
  void check() const {
    if (number_ == 0) weft::detail::throw_empty("weft::message::Listener");
  }

  std::weak_ptr<detail::LoopCore> core_;
  std::uint64_t number_ = 0;
  std::uint16_t port_ = 0;
};

}  // namespace weft::message
