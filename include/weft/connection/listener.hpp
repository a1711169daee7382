// The side that waits to be connected to.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "weft/connection/connection.hpp"
#include "weft/connection/options.hpp"
#include "weft/deadline.hpp"
#include "weft/export.hpp"

namespace weft::connection {

// Somebody wants to connect. Buffers can be made and receives posted before it is accepted. A
// request that is neither accepted nor rejected is rejected when it is destroyed.
class Request : public Endpoint {
 public:
  // The user's part of what came along.
  [[nodiscard]] WEFT_API std::span<const std::byte> private_data() const;
  [[nodiscard]] WEFT_API Connection accept(const Greeting& greeting, Deadline deadline,
                                           std::stop_token stop = {}) &&;
  WEFT_API void reject(std::span<const std::byte> private_data = {}) &&;

 private:
  friend class Async;
  friend class Listener;
  explicit Request(std::unique_ptr<detail::Core> core);
};

// Thread-safe: several threads may wait for requests of one listener.
class Listener {
 public:
  // Binds and listens. An empty host is any local address, port 0 a free one. `options` are those
  // of the connections. Throws Error.
  WEFT_API explicit Listener(const Address& address, const Options& options = {}, int backlog = 0);
  WEFT_API Listener(Listener&&) noexcept;
  WEFT_API Listener& operator=(Listener&&) noexcept;
  WEFT_API ~Listener();

  [[nodiscard]] WEFT_API std::uint16_t port() const;
  // The next request; nothing where none came until the deadline, or a stop was requested.
  [[nodiscard]] WEFT_API std::optional<Request> next(Deadline deadline, std::stop_token stop = {});
  // The next connection, whoever it is. Throws Error(ETIMEDOUT) or Error(ECANCELED).
  [[nodiscard]] WEFT_API Connection accept(Deadline deadline, const Greeting& greeting = {},
                                           std::stop_token stop = {});
  // Readable while a request may be waiting.
  [[nodiscard]] WEFT_API int fd() const;
  [[nodiscard]] WEFT_API const verbs::Id& id() const;

 private:
  friend class Async;
  struct State;
  struct NextCondition;
  std::unique_ptr<State> state_;
};

}  // namespace weft::connection
