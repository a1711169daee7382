// The side that waits to be connected to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/stream/options.hpp"
#include "weft/stream/stream.hpp"

namespace weft::stream {

namespace detail {
struct Asked;
class Door;
}  // namespace detail

// Somebody wants to connect. Neither accepted nor rejected, it is rejected when it is destroyed.
class Request {
 public:
  WEFT_API Request(Request&&) noexcept;
  WEFT_API Request& operator=(Request&&) noexcept;
  WEFT_API ~Request();

  // The peer's part of what came along.
  [[nodiscard]] WEFT_API std::span<const std::byte> private_data() const;
  [[nodiscard]] WEFT_API std::string peer_address() const;
  [[nodiscard]] WEFT_API std::string local_address() const;  // that was connected to
  // Returns at once, with a stream that is still connecting; using it waits. `options` replace the
  // listener's. Throws Error.
  WEFT_API Stream accept(std::span<const std::byte> private_data = {}) &&;
  WEFT_API Stream accept(std::span<const std::byte> private_data, const Options& options) &&;
  WEFT_API void reject(std::span<const std::byte> private_data = {}) &&;

 private:
  friend class Listener;
  friend class detail::Door;
  explicit Request(std::unique_ptr<detail::Asked> asked);

  std::unique_ptr<detail::Asked> asked_;
};

// Thread-safe: several threads may wait for requests. Peers of another version, or without a common
// variant, are refused with the reason and never seen.
class Listener {
 public:
  // Binds. An empty host is any local address, port 0 a free one. `options` are those of the
  // streams. Throws Error.
  WEFT_API explicit Listener(const Address& address, const Options& options = {});
  WEFT_API Listener(Listener&&) noexcept;
  WEFT_API Listener& operator=(Listener&&) noexcept;
  WEFT_API ~Listener();

  // Has no address: requests come by adopt(). Embedded backend only.
  WEFT_API static Listener for_connections(const Options& options = {});
  // A TCP connection of a Stream's that somebody else has accepted (inetd, another process, a
  // server that looks at the first bytes), and of which nothing was read. Takes the descriptor,
  // also where it throws Error: EINVAL for a listener with an address.
  WEFT_API void adopt(int connection);

  // The calls below do so with backlog 0, the device's own, where it was not done before.
  WEFT_API void listen(int backlog = 0);
  [[nodiscard]] WEFT_API std::uint16_t port() const;
  [[nodiscard]] WEFT_API std::string local_address() const;
  // The next request; nothing where none came until the deadline.
  [[nodiscard]] WEFT_API std::optional<Request> next(Deadline deadline);
  // The next stream, connected, whoever it is. Throws Error(ETIMEDOUT).
  [[nodiscard]] WEFT_API Stream accept(Deadline deadline,
                                       std::span<const std::byte> private_data = {});
  // Readable while a request may be waiting.
  [[nodiscard]] WEFT_API int fd() const;
  // Requests go there, with `cookie`, instead of to next().
  WEFT_API void attach(EventQueue* queue, std::uint64_t cookie = 0);
  [[nodiscard]] WEFT_API std::uint64_t refused() const;  // how many peers
  [[nodiscard]] WEFT_API const verbs::Id& id() const;

 private:
  explicit Listener(std::shared_ptr<detail::Door> door);

  std::shared_ptr<detail::Door> door_;
};

}  // namespace weft::stream
