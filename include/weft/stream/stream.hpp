// One end of a byte stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/stream/options.hpp"

namespace weft::stream {

class EventQueue;

namespace detail {
class Endpoint;
}

enum class Status {
  ok,           // `bytes` were sent or received
  would_block,  // none, and the deadline has passed
  end,          // the peer has sent its last byte, and all were received: said once
  failed,       // `error_number` says why
};

// Of sending and receiving. `bytes` counts those that were moved.
struct Outcome {
  Status status = Status::ok;
  std::size_t bytes = 0;
  int error_number = 0;

  [[nodiscard]] bool ok() const { return status == Status::ok; }
  [[nodiscard]] bool would_block() const { return status == Status::would_block; }
  [[nodiscard]] bool end() const { return status == Status::end; }
};

enum class State {
  idle,        // made, and free to be set up
  connecting,  // asked for or accepted, and not there yet
  connected,
  failed,  // could not be connected, or has broken: error_number() says why
  closed,  // by us
};

// As of recv(2).
struct ReceiveFlags {
  bool peek = false;      // the bytes stay
  bool wait_all = false;  // not before all have come, the stream ends, or the deadline passes
};

// What has gone through a stream.
struct Statistics {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t data_messages_sent = 0;
  std::uint64_t data_messages_received = 0;
  std::uint64_t updates_sent = 0;  // of ring space and receives
  std::uint64_t updates_received = 0;
  std::uint64_t refused_sends = 0;    // answered would_block
  std::uint64_t answered_probes = 0;  // of keepalive
};

// Any number of threads may call anything at once, but for moving and destroying. The bytes of one
// call are never mixed with those of another. Destroying closes, with Options::linger.
class Stream {
 public:
  // Throws Error(EINVAL), see check().
  WEFT_API explicit Stream(const Options& options = {});
  WEFT_API Stream(Stream&&) noexcept;
  WEFT_API Stream& operator=(Stream&&) noexcept;
  WEFT_API ~Stream();

  // Before connecting only; then Error(EISCONN). Spin, linger and keepalive may change at any time.
  WEFT_API void set_options(const Options& options);
  [[nodiscard]] WEFT_API Options options() const;

  // --- Connecting
  // From which local address and port; may be left out.
  WEFT_API void bind(const Address& local);
  // Throws Refused, or Error: ETIMEDOUT at the deadline, which gives the attempt up.
  WEFT_API void connect(const Address& peer, Deadline deadline,
                        std::span<const std::byte> private_data = {});
  // Returns at once; the descriptor and an event queue tell when state() has changed.
  WEFT_API void start_connecting(const Address& peer, std::span<const std::byte> private_data = {});
  // Until it is connected; false at the deadline. Throws as connect() does.
  [[nodiscard]] WEFT_API bool await_connected(Deadline deadline);
  [[nodiscard]] WEFT_API State state() const;
  // Why state() is failed, else 0. A stream that the peer has left is ECONNRESET for whoever sends.
  [[nodiscard]] WEFT_API int error_number() const;
  // What the peer has sent along, its own part.
  [[nodiscard]] WEFT_API std::span<const std::byte> peer_private_data() const;
  // The variant in use; automatic before the stream is connected.
  [[nodiscard]] WEFT_API Variant variant() const;
  [[nodiscard]] WEFT_API std::string local_address() const;  // "192.0.2.1:7174"
  [[nodiscard]] WEFT_API std::string peer_address() const;

  // --- Bytes
  // Waits until all were taken; fewer where the deadline has passed or the stream has failed, which
  // the next call then says. The memory may be used again at once.
  [[nodiscard]] WEFT_API Outcome send(std::span<const std::byte> bytes,
                                      Deadline deadline = Deadline::never());
  [[nodiscard]] WEFT_API Outcome send(std::span<const std::span<const std::byte>> pieces,
                                      Deadline deadline = Deadline::never());
  // Straight from registered memory of domain(), without a copy. Returns when the memory may be
  // used again; only Deadline::never() makes that certain for all bytes.
  [[nodiscard]] WEFT_API Outcome send_registered(const verbs::LocalSlice& bytes,
                                                 Deadline deadline = Deadline::never());
  // Waits for at least one byte.
  [[nodiscard]] WEFT_API Outcome receive(std::span<std::byte> into,
                                         Deadline deadline = Deadline::never(),
                                         ReceiveFlags flags = {});
  [[nodiscard]] WEFT_API Outcome receive(std::span<const std::span<std::byte>> into,
                                         Deadline deadline = Deadline::never(),
                                         ReceiveFlags flags = {});

  // Whether send() would take a byte now; what it would say otherwise.
  [[nodiscard]] WEFT_API Outcome peek_send();
  // Whether receive() would return now: ok also where that is the end or a failure.
  [[nodiscard]] WEFT_API Outcome peek_receive();
  // Bytes that are here and were not received yet.
  [[nodiscard]] WEFT_API std::size_t bytes_available();
  // Readable while bytes, the end or a failure wait to be received, a connection attempt that is
  // over was not asked about, or a send that was refused could go on. Made when first asked for;
  // the stream owns it.
  [[nodiscard]] WEFT_API int fd();

  // --- Buffers of the peer's (rsocket(7) calls this iomap)
  // Lets the peer write to `memory`, which it addresses by `offset`; -1 lets us choose. Returns the
  // offset. The memory must live until unmapped or closed. Throws Error: ENOBUFS where the peer has
  // no room for another (Options::mapped_buffers).
  WEFT_API std::int64_t map_buffer(std::span<std::byte> memory, std::int64_t offset,
                                   Deadline deadline = Deadline::never());
  WEFT_API void unmap_buffer(std::span<const std::byte> memory,
                             Deadline deadline = Deadline::never());
  // Into the peer's mapped buffer; in order with what is sent. EFAULT where nothing is mapped
  // there.
  [[nodiscard]] WEFT_API Outcome write_mapped(std::span<const std::byte> bytes,
                                              std::uint64_t offset,
                                              Deadline deadline = Deadline::never());

  // --- The end
  // No more bytes will be sent; the peer sees the end behind those that were. Receiving goes on.
  WEFT_API void finish();
  // Ends both directions. Whoever still waits in a call fails with ECANCELED; what was sent reaches
  // the peer, if its device answers before the deadline. False where it did not, or something was
  // lost. Safe to call twice.
  WEFT_API bool close(Deadline linger);
  // At once: the peer sees a reset behind what has reached it.
  WEFT_API void abort();

  [[nodiscard]] WEFT_API Statistics statistics() const;
  // Its connected, failed and shutdown events go there, with `cookie`; null ends that. One queue at
  // a time.
  WEFT_API void attach(EventQueue* queue, std::uint64_t cookie = 0);

  // The objects below; they throw Error(ENOTCONN) where there are none yet.
  [[nodiscard]] WEFT_API const verbs::Id& id() const;
  [[nodiscard]] WEFT_API const verbs::ProtectionDomain& domain() const;

  // For layers that stand on streams: is called with what the stream's readiness is, whenever that
  // has changed, one call after the other, and must not call the stream.
  struct Readiness {
    bool readable = false;            // receive() would return
    bool writable = false;            // send() would take a byte, or fail
    bool settled = false;             // no longer connecting
    bool over = false;                // nothing can be sent or received any more but what is here
    bool ended = false;               // the peer has sent its last byte
    std::uint64_t arrived_bytes = 0;  // ever
    friend bool operator==(const Readiness&, const Readiness&) = default;
  };
  // Is told when a Readiness may have changed.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    virtual void changed(const Readiness& now) noexcept = 0;
  };
  // The watcher is called once at least, and must live until it is taken away.
  WEFT_API Readiness watch(Watcher* watcher);
  WEFT_API void unwatch(Watcher* watcher);
  [[nodiscard]] WEFT_API Readiness readiness();

 private:
  friend class Request;
  explicit Stream(std::shared_ptr<detail::Endpoint> endpoint);

  std::shared_ptr<detail::Endpoint> endpoint_;
};

}  // namespace weft::stream
