// The side that waits for connections.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "weft/export.hpp"
#include "weft/message/connection.hpp"

namespace weft::message {

class EventLoop;

namespace detail {
class LoopCore;
struct PendingRequest;
}  // namespace detail

// Somebody wants to connect. To be decided on in the callback, or later; a request that is
// destroyed undecided is refused.
class Request {
 public:
  WEFT_API Request(Request&&) noexcept;
  WEFT_API Request& operator=(Request&&) noexcept;
  WEFT_API ~Request();

  // The application's part of what came along.
  [[nodiscard]] WEFT_API std::span<const std::byte> private_data() const;
  [[nodiscard]] WEFT_API std::string peer_address() const;

  // `established` follows, or `error`. Throws Error, also where the request was decided on before
  // (EALREADY).
  WEFT_API Connection accept(Handlers handlers, const Options& options = {});
  // The connection belongs to another loop: its callbacks are called there. So several loops, each
  // with its thread, share one listener. The handle is to be used there only.
  WEFT_API Connection accept_on(EventLoop& loop, Handlers handlers, const Options& options = {});
  WEFT_API void reject(std::span<const std::byte> private_data = {});

 private:
  friend class detail::LoopCore;
  explicit Request(std::unique_ptr<detail::PendingRequest> pending);
  std::unique_ptr<detail::PendingRequest> pending_;
};

using RequestHandler = std::function<void(Request)>;

// Destroying it closes it: its connections and its requests that wait for a decision stay.
class Listener {
 public:
  WEFT_API Listener(Listener&&) noexcept;
  WEFT_API Listener& operator=(Listener&&) noexcept;
  WEFT_API ~Listener();

  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Connections and undecided requests that count against max_connections.
  [[nodiscard]] WEFT_API std::size_t connections() const;
  // Requests that were rejected because of max_connections, or that were not understood.
  [[nodiscard]] WEFT_API std::uint64_t turned_away() const;

 private:
  friend class EventLoop;
  Listener(std::weak_ptr<detail::LoopCore> core, std::uint64_t number, std::uint16_t port);

  std::weak_ptr<detail::LoopCore> core_;
  std::uint64_t number_ = 0;
  std::uint16_t port_ = 0;
};

}  // namespace weft::message
