// A connection: messages out, messages in, and what becomes of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/error.hpp"
#include "weft/export.hpp"
#include "weft/message/buffer.hpp"
#include "weft/message/coroutine.hpp"
#include "weft/message/limits.hpp"
#include "weft/message/status.hpp"
#include "weft/verbs.hpp"

namespace weft::message {

using verbs::Address;
using verbs::LocalSlice;

class Connection;

namespace detail {
class Link;
struct Record;
}  // namespace detail

// Why a request to connect was rejected.
enum class RejectReason {
  nobody_listens,        // nobody has the port open
  other_version,         // the peer speaks another version of the protocol
  malformed,             // the peer does not understand us
  no_handler,            // the listener has no callback for requests
  too_many_connections,  // the listener has its max_connections
  refused,               // its application said no, or nothing
};

// error_number() is ECONNREFUSED.
class WEFT_API Rejected : public Error {
 public:
  Rejected(RejectReason reason, const std::string& what, std::vector<std::byte> private_data = {});
  [[nodiscard]] RejectReason reason() const { return reason_; }
  // What the peer's application has said.
  [[nodiscard]] const std::vector<std::byte>& private_data() const { return private_data_; }

 private:
  RejectReason reason_;
  std::vector<std::byte> private_data_;
};

// How a connection that was established has ended.
struct Ending {
  enum class By {
    us,    // disconnect() or disconnect_after_sending() here
    peer,  // disconnect_after_sending() there: everything it sent has been received
    cut,   // disconnect() there, or it is gone
    failure
  };
  By by = By::cut;
  int error_number = 0;  // of a failure, as in the `error` before it
};

// What has become of a message that was sent. A handle: copies are the same message, and dropping
// it changes nothing. May be read in any thread, at any time.
class Sending {
 public:
  Sending() = default;
  // The message was taken. Otherwise error_number() says why not, no callback is called for it, and
  // its status is `failed`.
  [[nodiscard]] explicit operator bool() const { return record_ != nullptr; }
  [[nodiscard]] WEFT_API Status status() const;
  // Of one that has failed: EMSGSIZE, longer than either side allows; EAGAIN, too much waits to be
  // sent; ENOTCONN; EINVAL, too many pieces, or memory of another device; ECONNRESET,
  // ECONNABORTED, ETIMEDOUT, EPROTO and others, the connection has ended before.
  [[nodiscard]] WEFT_API int error_number() const;
  [[nodiscard]] WEFT_API std::uint64_t size_bytes() const;
  [[nodiscard]] WEFT_API std::uint32_t type() const;
  [[nodiscard]] WEFT_API std::uint64_t tag() const;
  friend bool operator==(const Sending& a, const Sending& b) { return a.record_ == b.record_; }

  // Whether nothing more will become of it: sent, delivered where that was asked for, or failed.
  [[nodiscard]] WEFT_API bool is_settled() const;
  // Waits until it is, and answers its status, which is what it was where the wait ended early.
  // `co_await connection.send(...)` is this without a deadline. Only in the loop's thread.
  [[nodiscard]] WEFT_API detail::Wait<Status> settled(Deadline deadline = Deadline::never(),
                                                      std::stop_token stop = {}) const;
  friend detail::Wait<Status> operator co_await(const Sending& sending) {
    return sending.settled();
  }

 private:
  friend class detail::Link;
  explicit Sending(std::shared_ptr<detail::Record> record) : record_(std::move(record)) {}
  explicit Sending(int error) : error_(error) {}

  std::shared_ptr<detail::Record> record_;
  int error_ = 0;
};

// What goes along with a message; `type` and `tag` are the application's and arrive with it.
struct SendOptions {
  std::uint32_t type = 0;
  std::uint64_t tag = 0;
  bool confirm = false;  // let me know when the peer's callback has returned: `delivered`
};

// Called by the loop's thread, one at a time. Any of them may send, disconnect, destroy what it
// likes, and throw: EventLoop::step() throws it on, and can be called again.
struct Handlers {
  std::function<void(Connection&)> established{};
  // A message, in order. While there is no such callback messages wait, and may be taken by
  // Connection::receive().
  std::function<void(Connection&, Received&)> message{};
  // Of each message that was taken, `sent` once, then if that was asked for `delivered` once; or
  // `failed` once, which may come after `sent` where `delivered` was asked for. A long message is
  // sent when the peer has read it: shorter ones behind it may be sent before.
  std::function<void(Connection&, const Sending&)> sent{};
  std::function<void(Connection&, const Sending&)> delivered{};
  std::function<void(Connection&, const Sending&)> failed{};
  // After a send was refused with EAGAIN: half of the queue is free again.
  std::function<void(Connection&)> writable{};
  // The connection could not be established (a Rejected where the peer said no), or it has failed:
  // then `disconnected` follows.
  std::function<void(Connection&, const Error&)> error{};
  // It was established, and has ended: once, and nothing comes after it.
  std::function<void(Connection&, const Ending&)> disconnected{};
};

// Of one connection.
struct Options {
  // Read during the call; max_private_data_bytes.
  std::span<const std::byte> private_data{};
  // For a connection to be there, from the call on.
  std::chrono::milliseconds connect_timeout{10'000};
  // When nothing has come for so long, the peer is asked for a sign of life; when none comes for
  // as long again, the connection fails with ETIMEDOUT. Longer than the longest callback of the
  // peer. 0: never.
  std::chrono::milliseconds keepalive{0};
  void* user = nullptr;
};

// Of one connection, since it was there.
struct Statistics {
  std::uint64_t messages_sent = 0;  // that have become `sent`
  std::uint64_t bytes_sent = 0;
  std::uint64_t frames_sent = 0;        // that carried messages; short ones that wait share one
  std::uint64_t messages_received = 0;  // handed over
  std::uint64_t bytes_received = 0;
  std::uint64_t messages_waiting = 0;  // to be sent
  std::uint64_t credit_waits = 0;      // how often sending had to wait for the peer
  std::chrono::nanoseconds waited_for_credits{0};
};

enum class State { connecting, established, disconnecting, ended };

// A handle, cheap to copy; all copies are the same connection. The loop keeps a connection until it
// has ended, whether or not there are handles. To be used in the loop's thread, which is whoever is
// inside of EventLoop::step() or run(), else anybody; another thread gets std::logic_error, and
// uses EventLoop::post().
class Connection {
 public:
  Connection() = default;
  [[nodiscard]] explicit operator bool() const { return link_ != nullptr; }

  // All three send one message, of 0 bytes or more. The bytes are copied during the call ...
  WEFT_API Sending send(std::span<const std::byte> bytes, const SendOptions& options = {});
  Sending send(std::string_view text, const SendOptions& options = {}) {
    return send(std::as_bytes(std::span(text)), options);
  }
  Sending send(const char* text, const SendOptions& options = {}) {
    return send(std::string_view(text), options);
  }
  // ... or the memory is sent from, without a copy: the buffer's, which stays until then ...
  WEFT_API Sending send(const Buffer& buffer, const SendOptions& options = {});
  // ... or the user's own, registered in domain(): pieces that are gathered. It must stay as it is
  // until the message is sent or has failed. A peer may read exactly these bytes meanwhile.
  WEFT_API Sending send(std::span<const LocalSlice> pieces, const SendOptions& options = {});

  // A buffer to send on this or another connection of the loop. Throws Error.
  [[nodiscard]] WEFT_API Buffer allocate(std::size_t bytes) const;
  // To register memory in. Throws Error(ENOTCONN) where the device is not known yet.
  [[nodiscard]] WEFT_API const verbs::ProtectionDomain& domain() const;

  // The next message, where there is no callback for messages; nothing where none has come. Taking
  // it counts as its delivery. Also after the end.
  [[nodiscard]] WEFT_API std::optional<Received> receive();

  // --- For coroutines
  // Until it is established. Throws the Error that there was instead, ETIMEDOUT or ECANCELED.
  [[nodiscard]] WEFT_API detail::Wait<void> established(Deadline deadline = Deadline::never(),
                                                        std::stop_token stop = {}) const;
  // The next message; nothing where the connection has ended, or the wait.
  [[nodiscard]] WEFT_API detail::Wait<std::optional<Received>> next(
      Deadline deadline = Deadline::never(), std::stop_token stop = {}) const;
  // Until writable(); false where the connection has ended, or the wait.
  [[nodiscard]] WEFT_API detail::Wait<bool> until_writable(Deadline deadline = Deadline::never(),
                                                           std::stop_token stop = {}) const;

  // --- The end
  // At once: what is not sent has failed. The callbacks for it, and `disconnected`, come from the
  // loop.
  WEFT_API void disconnect();
  // When everything sent so far is sent, and delivered where that was asked for.
  WEFT_API void disconnect_after_sending();

  [[nodiscard]] WEFT_API State state() const;
  // Whether a send of some bytes would be taken.
  [[nodiscard]] WEFT_API bool writable() const;
  // The longest message that both sides allow; 0 where there is no connection yet.
  [[nodiscard]] WEFT_API std::uint64_t max_message_bytes() const;
  [[nodiscard]] WEFT_API Statistics statistics() const;
  // What the peer has said when it connected or accepted.
  [[nodiscard]] WEFT_API std::span<const std::byte> peer_private_data() const;
  // "192.0.2.1:7174"; empty where not known yet, and after the end.
  [[nodiscard]] WEFT_API std::string local_address() const;
  [[nodiscard]] WEFT_API std::string peer_address() const;

  WEFT_API void set_handlers(Handlers handlers);
  [[nodiscard]] WEFT_API void* user() const;
  WEFT_API void set_user(void* user);
  friend bool operator==(const Connection& a, const Connection& b) { return a.link_ == b.link_; }

 private:
  friend class EventLoop;
  friend class Request;
  friend class detail::Link;
  explicit Connection(std::shared_ptr<detail::Link> link) : link_(std::move(link)) {}
  [[nodiscard]] detail::Link& link() const;

  std::shared_ptr<detail::Link> link_;
};

}  // namespace weft::message
