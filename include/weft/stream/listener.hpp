// Listener: the passive side, which accepts streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/stream/options.hpp"
#include "weft/stream/stream.hpp"

namespace weft::stream {

namespace detail {
struct PendingRequest;
class ListenerCore;
}  // namespace detail

// A request of a peer to connect. If it is neither accepted nor rejected, it is rejected when it is
// destroyed. Not thread-safe.
class Request {
 public:
  WEFT_API Request(Request&&) noexcept;
  WEFT_API Request& operator=(Request&&) noexcept;
  WEFT_API ~Request();

  // The private data that the peer's program sent with the request. Valid as long as this object.
  [[nodiscard]] WEFT_API std::span<const std::byte> private_data() const;
  // The address that the peer connects from, "192.0.2.1:34567".
  [[nodiscard]] WEFT_API std::string peer_address() const;
  [[nodiscard]] WEFT_API std::string local_address() const;  // that the peer connects to
  // Returns a stream at once, which is still connecting; calls of the stream wait for that.
  // `options` replace those of the listener. Throws Error.
  WEFT_API Stream accept(std::span<const std::byte> private_data = {}) &&;
  WEFT_API Stream accept(std::span<const std::byte> private_data, const Options& options) &&;
  // Rejects: the peer's connect() throws Rejected with this private data. Throws Error; the object
  // is empty afterwards in either case.
  WEFT_API void reject(std::span<const std::byte> private_data = {}) &&;

 private:
  friend class Listener;
  friend class detail::ListenerCore;
  explicit Request(std::unique_ptr<detail::PendingRequest> pending);

  [[nodiscard]] detail::PendingRequest& undecided() const;

  weft::detail::Held<std::unique_ptr<detail::PendingRequest>, "weft::stream::Request"> pending_;
};

// Thread-safe: several threads may wait for requests. Peers of another version, or without a common
// variant, are rejected with the reason, and next() does not return them.
class Listener {
 public:
  // Binds to an address. An empty host is any local address, port 0 a free port. The streams get
  // these `options`. Throws Error.
  WEFT_API explicit Listener(const Address& address, const Options& options = {});
  WEFT_API Listener(Listener&&) noexcept;
  WEFT_API Listener& operator=(Listener&&) noexcept;
  WEFT_API ~Listener();

  // A listener without an address, which gets its requests by adopt(). Embedded backend only.
  WEFT_API static Listener for_connections(const Options& options = {});
  // Takes over a TCP connection that a Stream has made and that other code has accepted: inetd,
  // another process, or a server that peeks at the first bytes. Nothing may have been read from it.
  // Owns the descriptor from now on, also if it throws Error: EINVAL for a listener with an
  // address.
  // A listening socket, from which such connections will be accepted, is not accepted from: it lets
  // processes of this host find this one, so that the streams leave TCP (WEFT_SAME_HOST). The copy
  // is closed with the listener.
  WEFT_API void adopt(int connection);

  // Starts to listen; `backlog` 0 is the device's default. Optional: next(), accept() and attach()
  // do it with 0. Throws Error: EINVAL if the listener listens already.
  WEFT_API void listen(int backlog = 0);
  // The port that it is bound to; the one that was chosen where 0 was asked for.
  [[nodiscard]] WEFT_API std::uint16_t port() const;
  // The address that it is bound to, "192.0.2.1:7174".
  [[nodiscard]] WEFT_API std::string local_address() const;
  // Waits for the next request; nothing at the deadline. Throws Error.
  [[nodiscard]] WEFT_API std::optional<Request> next(Deadline deadline);
  // Accepts the requests that come, and returns the stream that is connected first, as accept(2)
  // does: a peer that is silent keeps no other one waiting. What is not connected at the deadline
  // is left to the next call; so the `private_data` of a peer is that of the call that has seen its
  // request. At most 64 streams are connecting at once; then one whose peer was silent for a second
  // is given up. Throws Error: ETIMEDOUT at the deadline.
  [[nodiscard]] WEFT_API Stream accept(Deadline deadline,
                                       std::span<const std::byte> private_data = {});
  // Readable while a request may be waiting. Belongs to the listener.
  [[nodiscard]] WEFT_API int fd() const;
  // From now on requests go to `queue`, with `cookie`, and not to next(). Null ends that.
  WEFT_API void attach(EventQueue* queue, std::uint64_t cookie = 0);
  [[nodiscard]] WEFT_API std::uint64_t refused() const;  // number of peers that were rejected
  // The rdma_cm id that listens. Belongs to the listener.
  [[nodiscard]] WEFT_API const verbs::Id& id() const;

 private:
  friend class Async;
  explicit Listener(std::shared_ptr<detail::ListenerCore> core);

  weft::detail::Held<std::shared_ptr<detail::ListenerCore>, "weft::stream::Listener"> core_;
};

}  // namespace weft::stream
