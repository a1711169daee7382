// A connection, from its queue pair's making to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "weft/connection/options.hpp"
#include "weft/deadline.hpp"
#include "weft/export.hpp"

namespace weft::connection {

namespace detail {
class Core;
}

enum class Queue { send, receive };

// What became of a request.
struct Outcome {
  std::uint64_t id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_opcode opcode = IBV_WC_SEND;  // where ok()
  std::uint32_t size_bytes = 0;        // of a receive or read, where ok()
  std::optional<std::uint32_t> immediate;

  [[nodiscard]] bool ok() const { return status == IBV_WC_SUCCESS; }
  [[nodiscard]] WEFT_API std::string_view status_name() const;
};

// Something the peer has told us of.
struct Advertisement {
  RemoteBuffer buffer;
  std::uint32_t tag = 0;  // the peer's, to tell its buffers apart
};

// What can be done before a connection is there as well as afterwards: making buffers, posting
// receives. Thread-safe but for moving and destroying.
class Endpoint {
 public:
  WEFT_API Endpoint(Endpoint&&) noexcept;
  WEFT_API Endpoint& operator=(Endpoint&&) noexcept;
  WEFT_API ~Endpoint();

  // `bytes` zero bytes, owned by the buffer; or the user's memory, which must outlive it. Throw
  // Error. A buffer must outlive the requests that use it, and what the peer does with it.
  [[nodiscard]] WEFT_API Buffer allocate(std::size_t bytes, Access access = Access::local) const;
  [[nodiscard]] WEFT_API Buffer register_buffer(std::span<std::byte> memory,
                                                Access access = Access::local) const;

  // 0, or the errno of ibv_post_recv(3).
  [[nodiscard]] WEFT_API int post_receive(std::span<const LocalSlice> into, std::uint64_t id);
  [[nodiscard]] int post_receive(const LocalSlice& into, std::uint64_t id) {
    return post_receive(std::span(&into, 1), id);
  }

  [[nodiscard]] WEFT_API std::string local_address() const;
  [[nodiscard]] WEFT_API std::string peer_address() const;

  // The objects below. What is posted to them directly is awaited directly, or comes out of await()
  // with its own id: ids whose upper 16 bits are 0x5743 are this library's.
  [[nodiscard]] WEFT_API const verbs::Id& id() const;
  [[nodiscard]] WEFT_API const verbs::ProtectionDomain& domain() const;
  [[nodiscard]] WEFT_API const verbs::QueuePair& queue_pair() const;
  [[nodiscard]] WEFT_API const verbs::CompletionQueue& completion_queue(Queue queue) const;

 protected:
  WEFT_API explicit Endpoint(std::unique_ptr<detail::Core> core);
  [[nodiscard]] detail::Core& core() const { return *core_; }
  [[nodiscard]] WEFT_API std::unique_ptr<detail::Core> take();

 private:
  friend class Async;
  friend class Attempt;
  std::unique_ptr<detail::Core> core_;
};

// A connection that is there. It can be moved; destroying it disconnects.
class Connection : public Endpoint {
 public:
  // What the peer has sent along when it connected or accepted, as far as it reached us: transports
  // may add zero bytes at the end, unless both sides let each other advertise.
  [[nodiscard]] WEFT_API std::span<const std::byte> peer_private_data() const;

  // The posting calls return 0 or an errno: ENOMEM where the queue is full, EMSGSIZE where the
  // peer's buffer is too small for what goes to or comes from that offset. Requests that are not
  // signaled have no outcome unless they fail.
  [[nodiscard]] WEFT_API int post_send(std::span<const LocalSlice> from, std::uint64_t id,
                                       SendFlags flags = SendFlags::signaled);
  [[nodiscard]] WEFT_API int post_write(std::span<const LocalSlice> from, const RemoteBuffer& to,
                                        std::uint64_t offset_bytes, std::uint64_t id,
                                        SendFlags flags = SendFlags::signaled);
  // More slices than the device reads into at once become several reads, with one outcome.
  [[nodiscard]] WEFT_API int post_read(std::span<const LocalSlice> into, const RemoteBuffer& from,
                                       std::uint64_t offset_bytes, std::uint64_t id,
                                       SendFlags flags = SendFlags::signaled);
  [[nodiscard]] int post_send(const LocalSlice& from, std::uint64_t id,
                              SendFlags flags = SendFlags::signaled) {
    return post_send(std::span(&from, 1), id, flags);
  }
  [[nodiscard]] int post_write(const LocalSlice& from, const RemoteBuffer& to,
                               std::uint64_t offset_bytes, std::uint64_t id,
                               SendFlags flags = SendFlags::signaled) {
    return post_write(std::span(&from, 1), to, offset_bytes, id, flags);
  }
  [[nodiscard]] int post_read(const LocalSlice& into, const RemoteBuffer& from,
                              std::uint64_t offset_bytes, std::uint64_t id,
                              SendFlags flags = SendFlags::signaled) {
    return post_read(std::span(&into, 1), from, offset_bytes, id, flags);
  }

  // Waits for `count` outcomes of that queue, failures included; fewer come back where the deadline
  // has passed, a stop was requested, or nothing is left that could still complete. Throws Error
  // where waiting itself fails.
  [[nodiscard]] WEFT_API std::vector<Outcome> await(Queue queue, std::size_t count,
                                                    Deadline deadline, std::stop_token stop = {});
  // Readable while an outcome may be waiting: then await() with Deadline::now(). The first look
  // must be made without waiting for it.
  [[nodiscard]] WEFT_API int fd(Queue queue) const;

  // Whether both sides have agreed to advertise.
  [[nodiscard]] WEFT_API bool can_advertise() const;
  // Tells the peer of a buffer. Throws Error: EOPNOTSUPP where the peer knows no advertisements,
  // EAGAIN where it has not looked at the last 64 yet.
  WEFT_API void advertise(const RemoteBuffer& buffer, std::uint32_t tag = 0);
  // The next buffer that the peer has told us of, in its order. Nothing where the deadline has
  // passed, a stop was requested, or the peer has gone. No receive of the user is used for it.
  [[nodiscard]] WEFT_API std::optional<Advertisement> await_advertisement(
      Deadline deadline, std::stop_token stop = {});
  // Readable when it is time to look again: then await_advertisement() with Deadline::now(), which
  // sets the next time where there is nothing, 2 ms from then at the latest. The peer's writes into
  // our memory wake nobody. The first look must be made without waiting for it.
  [[nodiscard]] WEFT_API int advertisement_fd() const;

  // Ends the connection: what is posted is flushed, here and there. Safe to call twice.
  WEFT_API void disconnect();
  // True as soon as the connection has ended, by either side; false at the deadline or a stop.
  [[nodiscard]] WEFT_API bool await_disconnect(Deadline deadline, std::stop_token stop = {});
  // Readable while something has happened to the connection, and from its end on: then
  // await_disconnect() with Deadline::now().
  [[nodiscard]] WEFT_API int disconnect_fd() const;

 private:
  friend class Async;
  friend class Attempt;
  friend class Prepared;
  friend class Request;
  explicit Connection(std::unique_ptr<detail::Core> core);
};

// A connection that is about to be asked for: buffers can be made and receives posted before.
class Prepared : public Endpoint {
 public:
  // Resolves the address; throws Error where that fails or takes too long.
  WEFT_API Prepared(const Address& peer, const Options& options, Deadline deadline,
                    std::stop_token stop = {});

  // Throws Error, or Rejected. The attempt is given up then, and with it what it was made from.
  [[nodiscard]] WEFT_API Connection connect(const Greeting& greeting, Deadline deadline,
                                            std::stop_token stop = {}) &&;

 private:
  friend class Async;
  using Endpoint::Endpoint;
};

// Both in one.
[[nodiscard]] inline Connection connect(const Address& peer, Deadline deadline,
                                        const Options& options = {}, const Greeting& greeting = {},
                                        const std::stop_token& stop = {}) {
  return Prepared(peer, options, deadline, stop).connect(greeting, deadline, stop);
}

}  // namespace weft::connection
