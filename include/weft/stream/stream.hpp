// Stream: one end of a byte stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/stream/options.hpp"

namespace weft::stream {

class EventQueue;

namespace detail {
class Endpoint;
}

enum class TransferStatus {
  ok,           // `bytes` were sent or received
  would_block,  // no byte was moved until the deadline
  end,          // all bytes of the peer were received, and no more will come: returned each time
  failed,       // `error_number` is the reason
};

// The result of sending or receiving. `bytes` is the number of bytes that were moved.
struct Transfer {
  TransferStatus status = TransferStatus::ok;
  std::size_t bytes = 0;
  int error_number = 0;

  // Whether `bytes` were moved.
  [[nodiscard]] bool ok() const { return status == TransferStatus::ok; }
  // Whether nothing could be moved before the deadline.
  [[nodiscard]] bool would_block() const { return status == TransferStatus::would_block; }
  // Whether the peer has sent its last byte, and all were received.
  [[nodiscard]] bool end() const { return status == TransferStatus::end; }
};

enum class State {
  idle,        // options may be set, and it may be connected
  connecting,  // by start_connecting() or Request::accept(); not established yet
  connected,
  failed,  // could not be connected, or the connection is lost: see error_number()
  closed,  // by close() on this side
};

// As the flags of recv(2).
struct ReceiveFlags {
  bool peek = false;  // the bytes can be received again
  // Wait until all bytes are here, the stream ends, or the deadline passes. With `peek`: or until
  // the stream's ring has no room for more, and cannot grow.
  bool wait_all = false;
};

// What Stream::view() returns: bytes that have arrived, where they have arrived.
struct View {
  Transfer transfer{};  // as of receive(); `bytes` is the size of the span
  std::span<const std::byte> bytes{};
};

// Counters of one stream.
struct Statistics {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t data_messages_sent = 0;
  std::uint64_t data_messages_received = 0;
  std::uint64_t updates_sent = 0;  // that return ring space or receives
  std::uint64_t updates_received = 0;
  std::uint64_t refused_sends = 0;    // calls that returned would_block
  std::uint64_t answered_probes = 0;  // of Keepalive
  // Of the bytes sent: those that this side has copied into the peer's memory itself, without
  // messages.
  std::uint64_t placed_bytes_sent = 0;
};

// Thread-safe, except for moving and destroying. The bytes of one call are never mixed with those
// of another. The destructor closes the stream, and waits for at most Options::linger.
class Stream {
 public:
  // Throws Error(EINVAL), see check().
  WEFT_API explicit Stream(const Options& options = {});
  WEFT_API Stream(Stream&&) noexcept;
  WEFT_API Stream& operator=(Stream&&) noexcept;
  WEFT_API ~Stream();

  // Spin, linger and keepalive may change at any time, the other options only before connecting.
  // Throws Error: EISCONN later, EINVAL as check().
  WEFT_API void set_options(const Options& options);
  // The options as they were set, by the constructor or set_options(), but for `device`.
  [[nodiscard]] WEFT_API Options options() const;

  // --- Connecting
  // Sets the local address and port to connect from. Optional. Throws Error.
  WEFT_API void bind(const Address& local);
  // Connects, and waits for the result. Throws Rejected, or Error: at the deadline ETIMEDOUT, which
  // also cancels the attempt.
  WEFT_API void connect(const Address& peer, Deadline deadline,
                        std::span<const std::byte> private_data = {});
  // Begins to connect, and returns at once: the name of a host is looked up in a thread of its own.
  // The descriptor and an event queue report the change of state(). Throws Error.
  WEFT_API void start_connecting(const Address& peer, std::span<const std::byte> private_data = {});
  // Waits until the stream is connected; false at the deadline. Throws Rejected or Error.
  [[nodiscard]] WEFT_API bool await_connected(Deadline deadline);
  // How far the stream has come.
  [[nodiscard]] WEFT_API State state() const;
  // The reason why state() is `failed`, or why sends fail after the peer has disconnected
  // (ECONNRESET); else 0.
  [[nodiscard]] WEFT_API int error_number() const;
  // The private data of the peer's program. Valid as long as this stream.
  [[nodiscard]] WEFT_API std::span<const std::byte> peer_private_data() const;
  // The variant in use; automatic before the stream is connected.
  [[nodiscard]] WEFT_API Variant variant() const;
  [[nodiscard]] WEFT_API std::string local_address() const;  // "192.0.2.1:7174"
  // The address of the peer, in the same form. Throws Error(ENOTCONN) before there is an address,
  // as local_address() does.
  [[nodiscard]] WEFT_API std::string peer_address() const;

  // --- Bytes
  // Waits until all bytes are sent, that is, copied into the stream's ring: the memory may be used
  // again at once. Fewer bytes are sent if the deadline passes, or if the stream fails, which the
  // next call then returns.
  [[nodiscard]] WEFT_API Transfer send(std::span<const std::byte> bytes,
                                       Deadline deadline = Deadline::never());
  [[nodiscard]] WEFT_API Transfer send(std::span<const std::span<const std::byte>> pieces,
                                       Deadline deadline = Deadline::never());
  // Sends straight from memory that is registered in domain(), without a copy. Returns when the
  // memory may be used again. Bytes that are not sent at the deadline are not counted in the
  // Transfer.
  [[nodiscard]] WEFT_API Transfer send_registered(const verbs::LocalSlice& bytes,
                                                  Deadline deadline = Deadline::never());
  // Waits for at least one byte, the end, or a failure. Every call behind the last byte returns the
  // end.
  [[nodiscard]] WEFT_API Transfer receive(std::span<std::byte> into,
                                          Deadline deadline = Deadline::never(),
                                          ReceiveFlags flags = {});
  [[nodiscard]] WEFT_API Transfer receive(std::span<const std::span<std::byte>> into,
                                          Deadline deadline = Deadline::never(),
                                          ReceiveFlags flags = {});

  // Waits as receive() does, and returns bytes in the stream's ring without a copy: all that lie
  // side by side there, so more may have arrived. They stay there, and are returned again, until
  // consume(). The span is valid until consume(), receive() or closing, by any thread. The peer can
  // write to its part of the ring at any time; so a program that does not trust it copies what it
  // checks before it checks it.
  [[nodiscard]] WEFT_API View view(Deadline deadline = Deadline::never());
  // The first `bytes` of the last view() are received; their place goes back to the peer. Throws
  // Error(EINVAL) if the view has fewer.
  WEFT_API void consume(std::size_t bytes);

  // `ok` if send() would take a byte now; otherwise what send() would return.
  [[nodiscard]] WEFT_API Transfer peek_send();
  // `ok` if receive() would return now, be it bytes, the end or a failure.
  [[nodiscard]] WEFT_API Transfer peek_receive();
  // Bytes that have arrived and were not received by the program.
  [[nodiscard]] WEFT_API std::size_t bytes_available();
  // A descriptor that is readable while bytes, the end or a failure can be received (until
  // receive() has returned the end for the first time), while the
  // result of connecting was not returned by any call, or while a send that returned would_block
  // can go on. Created by the first call; belongs to the stream.
  [[nodiscard]] WEFT_API int fd();
  // A descriptor that is readable while a send that returned would_block, or took a part of its
  // bytes, can go on or fails: for a program that receives nothing more before it has sent what it
  // has, and would not sleep on fd() while there are bytes. Created by the first call; belongs to
  // the stream.
  [[nodiscard]] WEFT_API int send_fd();

  // --- Mapped buffers (rsocket(7) calls this iomap)
  // Lets the peer write to `memory`, which it addresses by `offset`; with -1 the stream chooses the
  // offset. Returns the offset. The memory must stay valid until it is unmapped or the stream is
  // closed. Throws Error: ENOBUFS if the peer allows no further buffer (its
  // Options::mapped_buffers).
  WEFT_API std::int64_t map_buffer(std::span<std::byte> memory, std::int64_t offset,
                                   Deadline deadline = Deadline::never());
  // Ends a mapping; `memory` must be the whole of it. The peer cannot write there any more when
  // this returns. Throws Error: EINVAL if it is not mapped, EAGAIN at the deadline.
  WEFT_API void unmap_buffer(std::span<const std::byte> memory,
                             Deadline deadline = Deadline::never());
  // Writes to a buffer that the peer has mapped, in order with what is sent. Fails with EFAULT if
  // these offsets are not mapped.
  [[nodiscard]] WEFT_API Transfer write_mapped(std::span<const std::byte> bytes,
                                               std::uint64_t offset,
                                               Deadline deadline = Deadline::never());

  // --- The end
  // Ends the sending direction: the peer receives the end behind the bytes that were sent. A send
  // that waits for room in another thread ends as at its deadline, or fails with EPIPE if it has
  // sent nothing. Receiving is still possible. Throws Error.
  WEFT_API void finish();
  // Ends the receiving direction on this side, of which the peer is not notified: what has arrived
  // can be received, and behind it the end. Calls that wait for bytes in other threads return.
  WEFT_API void stop_receiving();
  // Ends both directions. Calls that wait in other threads fail with ECANCELED. Waits until the
  // peer's device has everything that was sent; false if it has not at the deadline, or if the
  // connection is lost. May be called twice.
  WEFT_API bool close(Deadline linger);
  // Closes the stream if that needs no wait: the peer's device has everything that was sent, and no
  // call of another thread is under way. Otherwise returns false; close() is still to be called.
  [[nodiscard]] WEFT_API bool close_if_sent();
  // Ends the stream at once: the peer receives what has arrived there, and then ECONNRESET.
  WEFT_API void abort();

  // A copy of the counters.
  [[nodiscard]] WEFT_API Statistics statistics() const;
  // Posts the `connected`, `failed` and `shutdown` events of this stream to `queue`, with `cookie`.
  // Replaces an earlier queue; null ends it.
  WEFT_API void attach(EventQueue* queue, std::uint64_t cookie = 0);

  // The objects of weft::verbs below this stream. Throw Error(ENOTCONN) if they do not exist yet.
  [[nodiscard]] WEFT_API const verbs::Id& id() const;
  // The domain in which memory for send_registered() is registered.
  [[nodiscard]] WEFT_API const verbs::ProtectionDomain& domain() const;

  // --- For layers that build on streams
  // What a stream can do without waiting.
  struct Readiness {
    bool readable = false;            // receive() would return
    bool writable = false;            // send() would take a byte, or fail
    bool settled = false;             // no longer connecting
    bool over = false;                // closed or failed: only bytes that are here can be received
    bool ended = false;               // the peer has sent its last byte
    bool drained = false;             // and receive() has returned it
    std::uint64_t arrived_bytes = 0;  // since the stream was connected
    // How often the peer has rung Options::bell, or is about to: the number of bytes that are in
    // the socket pair, or will be at once.
    std::uint64_t bells = 0;
    friend bool operator==(const Readiness&, const Readiness&) = default;
  };
  // Is called whenever the Readiness has changed, by any thread, one call after the other. Must not
  // call the stream. With Options::bell, bytes that arrive ring the bell, and are reported when the
  // next call notices them.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    // What the stream is ready for has changed. Called by any thread.
    virtual void changed(const Readiness& now) noexcept = 0;
    // Whether changed() must be called soon for bytes that arrive while others can be received
    // already. If not, the peer need not wake this process for them. Called by any thread.
    [[nodiscard]] virtual bool needs_every_arrival() const noexcept { return true; }
    // Whether the owner calls look() before it waits for this stream, and report_again() when this
    // is no longer so. Until then the peer need not wake this process. Called by any thread.
    [[nodiscard]] virtual bool looks() const noexcept { return false; }
  };
  // Adds a watcher, and calls it once before this returns. It must live until unwatch().
  WEFT_API Readiness watch(Watcher* watcher);
  // The bell is not rung any more after the last one.
  WEFT_API void unwatch(Watcher* watcher);
  // What the stream is ready for now.
  [[nodiscard]] WEFT_API Readiness readiness();
  // Notices what a peer process of this host has sent, or has made room for, and reports it to the
  // watchers. Costs few instructions if there is nothing. Does not look for anything else.
  WEFT_API void look();
  // Asks for wake-ups anew where they are needed, and reports to the watchers even if nothing has
  // changed. Returns whether the peer rings Options::bell for its next bytes.
  WEFT_API bool report_again();

 private:
  friend class Async;
  friend class Request;
  explicit Stream(std::shared_ptr<detail::Endpoint> endpoint);

  weft::detail::Held<std::shared_ptr<detail::Endpoint>, "weft::stream::Stream"> endpoint_;
};

}  // namespace weft::stream
