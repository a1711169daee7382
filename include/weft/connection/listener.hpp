// The passive side of connections: a listener and the requests that it receives.
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
#include "weft/handle.hpp"

namespace weft::connection {

// A peer's request to connect. Buffers can be allocated and receives posted before it is accepted.
// A request that is neither accepted nor rejected is rejected when it is destroyed.
class Request : public ConnectionEnd {
 public:
  // The peer's private data without this library's own part. Valid while the request lives.
  [[nodiscard]] WEFT_API std::span<const std::byte> private_data() const;
  // Accepts and waits until the connection is established. Throws Error; the object is empty
  // afterwards in either case, and after a failure the connection is closed.
  [[nodiscard]] WEFT_API Connection accept(const Greeting& greeting, Deadline deadline,
                                           std::stop_token stop = {}) &&;
  // Rejects. The peer's connect() throws Rejected with this private data. Throws Error; the object
  // is empty afterwards in either case.
  WEFT_API void reject(std::span<const std::byte> private_data = {}) &&;

 private:
  friend class Async;
  friend class Listener;
  explicit Request(std::unique_ptr<detail::Core> core);
};

// Thread-safe except for moving and destroying: several threads may wait for requests of one
// listener.
class Listener {
 public:
  // Binds and listens. An empty host means all local addresses, port 0 a free port. `options` apply
  // to the accepted connections. Throws Error.
  WEFT_API explicit Listener(const Address& address, const Options& options = {}, int backlog = 0);
  WEFT_API Listener(Listener&&) noexcept;
  WEFT_API Listener& operator=(Listener&&) noexcept;
  WEFT_API ~Listener();

  // The port that it listens on; the one that was chosen where 0 was asked for.
  [[nodiscard]] WEFT_API std::uint16_t port() const;
  // Waits for the next request. Returns nothing if the deadline has passed or a stop was requested.
  [[nodiscard]] WEFT_API std::optional<Request> next(Deadline deadline, std::stop_token stop = {});
  // Accepts peers, with this greeting, until one of them is connected. One that is silent after its
  // request keeps no other one waiting, and one that disconnects again is skipped. Up to 64 peers
  // that have been accepted and are not connected yet are kept for the next call; beyond that, one
  // that was silent for a second is given up. Throws Error(ETIMEDOUT) or Error(ECANCELED).
  [[nodiscard]] WEFT_API Connection accept(Deadline deadline, const Greeting& greeting = {},
                                           std::stop_token stop = {});
  // A descriptor that is readable while a request may be waiting, or a peer that accept() has
  // answered may be connected; then call next() or accept() with Deadline::now().
  [[nodiscard]] WEFT_API int fd() const;
  // The rdma_cm id that listens. Belongs to the listener.
  [[nodiscard]] WEFT_API const verbs::Id& id() const;

 private:
  friend class Async;
  struct State;
  struct NextCondition;
  struct AcceptCondition;
  weft::detail::Held<std::unique_ptr<State>, "weft::connection::Listener"> state_;
};

}  // namespace weft::connection
