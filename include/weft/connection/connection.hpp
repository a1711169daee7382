// A connection, from the creation of its queue pair to its end.
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
#include "weft/handle.hpp"

namespace weft::connection {

namespace detail {
class Core;
}

enum class Queue { send, receive };

// The result of a posted request: a work completion (ibv_poll_cq(3)) in C++ types.
struct Outcome {
  std::uint64_t id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_opcode opcode = IBV_WC_SEND;        // only if ok()
  std::uint32_t size_bytes = 0;              // of a receive or read, if ok()
  std::optional<std::uint32_t> immediate{};  // of the message that was received
  // The local rkey that the peer's send has invalidated.
  std::optional<std::uint32_t> invalidated_rkey{};

  // Whether the request was successful.
  [[nodiscard]] bool ok() const { return status == IBV_WC_SUCCESS; }
  // The status in words, as ibv_wc_status_str(3).
  [[nodiscard]] WEFT_API std::string_view status_name() const;
};

// A buffer that the peer has advertised.
struct Advertisement {
  RemoteBuffer buffer;
  std::uint32_t tag = 0;  // chosen by the peer; identifies the buffer
};

// The operations that are possible before a connection is established as well as afterwards:
// allocating buffers and posting receives. Thread-safe except for moving and destroying.
class ConnectionEnd {
 public:
  WEFT_API ConnectionEnd(ConnectionEnd&&) noexcept;
  WEFT_API ConnectionEnd& operator=(ConnectionEnd&&) noexcept;
  WEFT_API ~ConnectionEnd();

  // Registers memory: `bytes` zero bytes that the buffer owns, or the user's memory, which must
  // outlive the buffer. Throws Error. A buffer must outlive the requests that use it, and the
  // peer's accesses to it.
  [[nodiscard]] WEFT_API Buffer allocate(std::size_t bytes, Access access = Access::local) const;
  // The same for memory of the user.
  [[nodiscard]] WEFT_API Buffer register_buffer(std::span<std::byte> memory,
                                                Access access = Access::local) const;

  // Posts a receive. The memory must live until its completion. Returns 0, or the errno of
  // ibv_post_recv(3).
  [[nodiscard]] WEFT_API int post_receive(std::span<const LocalSlice> into, std::uint64_t id) const;
  [[nodiscard]] int post_receive(const LocalSlice& into, std::uint64_t id) const {
    return post_receive(std::span(&into, 1), id);
  }
  // The same with a slice that keeps its region (MemoryRegion::keep()): the endpoint holds it until
  // the receive has completed, or the endpoint is destroyed.
  [[nodiscard]] WEFT_API int post_receive(const KeptSlice& into, std::uint64_t id) const;

  // "192.0.2.1:7174", "[::1]:7174"; empty while the address is unknown.
  [[nodiscard]] WEFT_API std::string local_address() const;
  // The address of the peer, in the same form.
  [[nodiscard]] WEFT_API std::string peer_address() const;

  // The verbs objects of the connection. Completions of requests that were posted directly on the
  // queue pair can be polled directly, or await() returns them with their own ids. Ids with 0x5743
  // in the upper 16 bits are reserved for this library.
  [[nodiscard]] WEFT_API const verbs::Id& id() const;
  // The domain of its memory: Options::domain, or one of its own.
  [[nodiscard]] WEFT_API const verbs::ProtectionDomain& domain() const;
  // The queue pair, in the state that this end has reached.
  [[nodiscard]] WEFT_API const verbs::QueuePair& queue_pair() const;
  // The completion queue of its sends, or of its receives.
  [[nodiscard]] WEFT_API const verbs::CompletionQueue& completion_queue(Queue queue) const;

 protected:
  WEFT_API explicit ConnectionEnd(std::unique_ptr<detail::Core> core);
  [[nodiscard]] detail::Core& core() const { return *core_; }
  [[nodiscard]] WEFT_API std::unique_ptr<detail::Core> take();

 private:
  friend class Async;
  friend class Attempt;
  friend class Listener;
  weft::detail::Held<std::unique_ptr<detail::Core>,
                     "weft::connection::Connection, Prepared or Request">
      core_;
};

// An established connection. It can be moved; destroying it disconnects. Thread-safe except for
// moving and destroying.
class Connection : public ConnectionEnd {
 public:
  // The private data that the peer sent with its request or acceptance. The transport may append
  // zero bytes, unless both sides have enabled Options::advertisements. Valid while the connection
  // lives.
  [[nodiscard]] WEFT_API std::span<const std::byte> peer_private_data() const;

  // The post_ calls return 0 or an errno: ENOMEM if the queue is full, EMSGSIZE if the transfer
  // does not fit into the peer's buffer at that offset. The memory must live until the outcome.
  // Requests without SendFlags::signaled have an outcome only if they fail.
  [[nodiscard]] WEFT_API int post_send(std::span<const LocalSlice> from, std::uint64_t id,
                                       SendFlags flags = SendFlags::signaled) const;
  // Writes to an offset in the peer's buffer, which the peer does not notice.
  [[nodiscard]] WEFT_API int post_write(std::span<const LocalSlice> from, const RemoteBuffer& to,
                                        std::uint64_t offset_bytes, std::uint64_t id,
                                        SendFlags flags = SendFlags::signaled) const;
  // More slices than the device accepts in one read become several reads with one outcome. It is
  // IBV_WC_LOC_QP_OP_ERR if only the first of these reads could be posted.
  [[nodiscard]] WEFT_API int post_read(std::span<const LocalSlice> into, const RemoteBuffer& from,
                                       std::uint64_t offset_bytes, std::uint64_t id,
                                       SendFlags flags = SendFlags::signaled) const;
  // Sends one slice.
  [[nodiscard]] int post_send(const LocalSlice& from, std::uint64_t id,
                              SendFlags flags = SendFlags::signaled) const {
    return post_send(std::span(&from, 1), id, flags);
  }
  // Writes one slice.
  [[nodiscard]] int post_write(const LocalSlice& from, const RemoteBuffer& to,
                               std::uint64_t offset_bytes, std::uint64_t id,
                               SendFlags flags = SendFlags::signaled) const {
    return post_write(std::span(&from, 1), to, offset_bytes, id, flags);
  }
  // Reads into one slice.
  [[nodiscard]] int post_read(const LocalSlice& into, const RemoteBuffer& from,
                              std::uint64_t offset_bytes, std::uint64_t id,
                              SendFlags flags = SendFlags::signaled) const {
    return post_read(std::span(&into, 1), from, offset_bytes, id, flags);
  }

  // The same with slices that keep their region (MemoryRegion::keep()): the connection holds them
  // until the request has completed, or the connection is destroyed. Without SendFlags::signaled it
  // is until a later request has completed.
  [[nodiscard]] WEFT_API int post_send(const KeptSlice& from, std::uint64_t id,
                                       SendFlags flags = SendFlags::signaled) const;
  // Writes from a slice that keeps its region.
  [[nodiscard]] WEFT_API int post_write(const KeptSlice& from, const RemoteBuffer& to,
                                        std::uint64_t offset_bytes, std::uint64_t id,
                                        SendFlags flags = SendFlags::signaled) const;
  // Reads into a slice that keeps its region.
  [[nodiscard]] WEFT_API int post_read(const KeptSlice& into, const RemoteBuffer& from,
                                       std::uint64_t offset_bytes, std::uint64_t id,
                                       SendFlags flags = SendFlags::signaled) const;

  // Messages with 32 bits of immediate data, which the receiver finds in its Outcome. The write
  // consumes one of the peer's receives, which may be empty. EOPNOTSUPP if the peer cannot receive
  // sends with immediates: one that is no Weft device, over iWARP. These and the following take a
  // KeptSlice as well, which the connection holds as above.
  [[nodiscard]] WEFT_API int post_send_with_immediate(const LocalSlice& from,
                                                      std::uint32_t immediate, std::uint64_t id,
                                                      SendFlags flags = SendFlags::signaled) const;
  [[nodiscard]] WEFT_API int post_send_with_immediate(const KeptSlice& from,
                                                      std::uint32_t immediate, std::uint64_t id,
                                                      SendFlags flags = SendFlags::signaled) const;
  // Writes to the peer's buffer, and completes one of its receives with the immediate.
  [[nodiscard]] WEFT_API int post_write_with_immediate(const LocalSlice& from,
                                                       const RemoteBuffer& to,
                                                       std::uint64_t offset_bytes,
                                                       std::uint32_t immediate, std::uint64_t id,
                                                       SendFlags flags = SendFlags::signaled) const;
  [[nodiscard]] WEFT_API int post_write_with_immediate(const KeptSlice& from,
                                                       const RemoteBuffer& to,
                                                       std::uint64_t offset_bytes,
                                                       std::uint32_t immediate, std::uint64_t id,
                                                       SendFlags flags = SendFlags::signaled) const;
  // Sends, and invalidates at the peer an rkey that it has advertised: of a memory window of
  // type 2.
  [[nodiscard]] WEFT_API int post_send_with_invalidate(const LocalSlice& from, std::uint32_t rkey,
                                                       std::uint64_t id,
                                                       SendFlags flags = SendFlags::signaled) const;
  [[nodiscard]] WEFT_API int post_send_with_invalidate(const KeptSlice& from, std::uint32_t rkey,
                                                       std::uint64_t id,
                                                       SendFlags flags = SendFlags::signaled) const;
  // Atomics on eight bytes of the peer's buffer, at an offset where their address is a multiple of
  // eight. The previous value is stored in `before`, of eight bytes, in the peer's byte order. The
  // buffer needs Access::all.
  [[nodiscard]] WEFT_API int post_fetch_and_add(const LocalSlice& before,
                                                const RemoteBuffer& target,
                                                std::uint64_t offset_bytes, std::uint64_t addend,
                                                std::uint64_t id,
                                                SendFlags flags = SendFlags::signaled) const;
  [[nodiscard]] WEFT_API int post_fetch_and_add(const KeptSlice& before, const RemoteBuffer& target,
                                                std::uint64_t offset_bytes, std::uint64_t addend,
                                                std::uint64_t id,
                                                SendFlags flags = SendFlags::signaled) const;
  // Stores `desired` where the previous value is `expected`.
  [[nodiscard]] WEFT_API int post_compare_and_swap(const LocalSlice& before,
                                                   const RemoteBuffer& target,
                                                   std::uint64_t offset_bytes,
                                                   std::uint64_t expected, std::uint64_t desired,
                                                   std::uint64_t id,
                                                   SendFlags flags = SendFlags::signaled) const;
  [[nodiscard]] WEFT_API int post_compare_and_swap(const KeptSlice& before,
                                                   const RemoteBuffer& target,
                                                   std::uint64_t offset_bytes,
                                                   std::uint64_t expected, std::uint64_t desired,
                                                   std::uint64_t id,
                                                   SendFlags flags = SendFlags::signaled) const;

  // Waits for `count` outcomes of one queue, failures included. Returns fewer if the deadline has
  // passed, a stop was requested or, after the end, no posted request is left that could still
  // complete. Throws Error if waiting itself fails.
  [[nodiscard]] WEFT_API std::vector<Outcome> await(Queue queue, std::size_t count,
                                                    Deadline deadline, std::stop_token stop = {});
  // A descriptor that is readable when outcomes may have become available. Then, and before the
  // first wait for the descriptor, call await() with Deadline::now() until it returns fewer than
  // `count`: only such a call arms the descriptor.
  [[nodiscard]] WEFT_API int fd(Queue queue) const;

  // True if both sides have enabled Options::advertisements.
  [[nodiscard]] WEFT_API bool can_advertise() const;
  // Sends address, length and rkey of a buffer to the peer. Throws Error: EOPNOTSUPP if one side
  // has no advertisements, EAGAIN if the peer has not read the last 64 yet, ENOTCONN after the end.
  WEFT_API void advertise(const RemoteBuffer& buffer, std::uint32_t tag = 0);
  // Waits for the next buffer that the peer has advertised, in the peer's order. Returns nothing if
  // the deadline has passed, a stop was requested, or the connection has ended. Uses none of the
  // user's receives.
  [[nodiscard]] WEFT_API std::optional<Advertisement> await_advertisement(
      Deadline deadline, std::stop_token stop = {});
  // A descriptor that is readable when it is time to call await_advertisement() with
  // Deadline::now(); if that finds nothing, it sets the timer again, for 2 ms at the most. A timer
  // is needed because the peer's RDMA writes raise no event here. Call await_advertisement() once
  // before the first wait for the descriptor.
  [[nodiscard]] WEFT_API int advertisement_fd() const;

  // Ends the connection: posted requests are flushed on both sides. Safe to call twice. As with
  // rdma_disconnect(3), Sends of the peer that no receive has taken yet are dropped, and fail at
  // the peer; receives that have completed can still be awaited, until the connection is destroyed.
  // QueuePairCounters counts both: `unreceived`, and `unpolled_receives` at the destruction. A
  // protocol in which the last message matters has the receiver answer it.
  WEFT_API void disconnect();
  // Waits for the end of the connection, by either side. False if the deadline has passed or a stop
  // was requested.
  [[nodiscard]] WEFT_API bool await_disconnect(Deadline deadline, std::stop_token stop = {});
  // A descriptor that is readable after each connection event, and permanently after the end of the
  // connection; then call await_disconnect() with Deadline::now().
  [[nodiscard]] WEFT_API int disconnect_fd() const;

 private:
  friend class Async;
  friend class Attempt;
  friend class Listener;
  friend class Prepared;
  friend class Request;
  explicit Connection(std::unique_ptr<detail::Core> core);
};

// A connection before the connect request is sent: buffers can be allocated and receives posted.
class Prepared : public ConnectionEnd {
 public:
  // Resolves the address and the route. Throws Error if that fails or the deadline passes.
  WEFT_API Prepared(const Address& peer, const Options& options, Deadline deadline,
                    std::stop_token stop = {});

  // Connects. Throws Error, or Rejected; the object is empty afterwards in either case.
  [[nodiscard]] WEFT_API Connection connect(const Greeting& greeting, Deadline deadline,
                                            std::stop_token stop = {}) &&;

 private:
  friend class Async;
  using ConnectionEnd::ConnectionEnd;
};

// Resolves and connects in one call.
[[nodiscard]] inline Connection connect(const Address& peer, Deadline deadline,
                                        const Options& options = {}, const Greeting& greeting = {},
                                        const std::stop_token& stop = {}) {
  return Prepared(peer, options, deadline, stop).connect(greeting, deadline, stop);
}

}  // namespace weft::connection
