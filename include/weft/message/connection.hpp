// Connection: sends and receives messages. Also the handlers, options and results that belong to
// it.
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
  nobody_listens,        // no program listens on the port
  other_version,         // the peer uses another version of the protocol
  malformed,             // the peer could not parse the request
  no_handler,            // the listener has no callback for requests
  too_many_connections,  // the listener has reached its Limits::max_connections
  refused,               // the application has rejected the request, or has destroyed it
};

// The peer has rejected the request to connect. error_number() is ECONNREFUSED.
class WEFT_API Rejected : public Error {
 public:
  // What the peer has answered, a sentence about it, and what programs can evaluate.
  Rejected(RejectReason reason, const std::string& what, std::vector<std::byte> private_data = {},
           ErrorDetail detail = {});
  // Why the peer has rejected the request.
  [[nodiscard]] RejectReason reason() const { return reason_; }
  // The private data that the peer's application has sent with the rejection.
  [[nodiscard]] const std::vector<std::byte>& private_data() const { return private_data_; }

 private:
  RejectReason reason_;
  std::vector<std::byte> private_data_;
};

// How an established connection has ended.
struct Ending {
  enum class By {
    us,      // disconnect() or disconnect_after_sending() was called on this side
    peer,    // disconnect_after_sending() by the peer: all that it has sent was received
    cut,     // disconnect() by the peer, or the peer no longer exists
    failure  // see `error_number`
  };
  By by = By::cut;
  int error_number = 0;  // of a failure: that of the `error` callback before it
};

// A handle of a message that is sent, to query its status. Copies refer to the same message;
// destroying the handle does not affect the message. status() and the other queries may be called
// in any thread, at any time.
class Sending {
 public:
  // A handle of no message: it converts to false, and its status is `failed`.
  Sending() = default;
  // True if the message was accepted for sending. Otherwise error_number() is the reason, the
  // status is `failed`, and no callback is called for it.
  [[nodiscard]] explicit operator bool() const { return record_ != nullptr; }
  // The state that the message has reached.
  [[nodiscard]] WEFT_API Status status() const;
  // The reason of a failure. EMSGSIZE: longer than either side allows. EAGAIN: too much waits to be
  // sent. EINVAL: too many pieces, or memory of another device. ENOTCONN: not established,
  // and Options::queue_while_connecting is not set.
  // ECONNRESET, ECONNABORTED, ETIMEDOUT, EPROTO and others: the connection has ended before.
  [[nodiscard]] WEFT_API int error_number() const;
  // The length of the message; like type() and tag() 0 if it was not accepted.
  [[nodiscard]] WEFT_API std::uint64_t size_bytes() const;
  // SendOptions::type of the message.
  [[nodiscard]] WEFT_API std::uint32_t type() const;
  // SendOptions::tag of the message.
  [[nodiscard]] WEFT_API std::uint64_t tag() const;
  friend bool operator==(const Sending& a, const Sending& b) { return a.record_ == b.record_; }

  // Whether the status is final: sent, with SendOptions::confirm delivered, or failed.
  [[nodiscard]] WEFT_API bool is_settled() const;
  // Waits until is_settled(), and returns the status, which is not final if the deadline or `stop`
  // has ended the wait. `co_await connection.send(...)` is the same without a deadline. Only in the
  // loop's thread.
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

// Properties of a message. `type` and `tag` are free for the application, and arrive with it.
struct SendOptions {
  std::uint32_t type = 0;
  std::uint64_t tag = 0;
  bool confirm = false;  // report `delivered` when the peer's callback has returned
};

// Callbacks of a connection. The loop's thread calls them, one at a time. Each of them may send,
// disconnect, destroy any object, and throw: EventLoop::step() then throws the same, and can be
// called again.
struct Handlers {
  std::function<void(Connection&)> established{};
  // A message has arrived; messages are in order. Without this callback messages wait, and may be
  // taken by Connection::receive() or try_receive().
  std::function<void(Connection&, Received&)> message{};
  // For each message that was accepted for sending: `sent` once, and with SendOptions::confirm
  // `delivered` once; or `failed` once, which may follow `sent` if there was no `delivered`. A long
  // message is sent when the peer has read it, so shorter ones behind it may be sent earlier.
  std::function<void(Connection&, const Sending&)> sent{};
  std::function<void(Connection&, const Sending&)> delivered{};
  std::function<void(Connection&, const Sending&)> failed{};
  // After a send has failed with EAGAIN: half of the queue is free again.
  std::function<void(Connection&)> writable{};
  // The connection could not be established (Rejected if the peer has rejected it), or it was
  // established and has failed: then `disconnected` follows.
  std::function<void(Connection&, const Error&)> error{};
  // An established connection has ended. Called once, after all other callbacks.
  std::function<void(Connection&, const Ending&)> disconnected{};
};

// Options of one connection.
struct Options {
  // Sent to the peer; at most max_private_data_bytes. Copied during the call.
  std::span<const std::byte> private_data{};
  // Timeout from the call until the connection is established.
  std::chrono::milliseconds connect_timeout{10'000};
  // When nothing has completed for this time, an empty RDMA write asks the peer's device; when
  // nothing completes for the same time again, and the peer has not accessed memory of this side,
  // the connection fails with ETIMEDOUT. The device answers while the peer's loop is busy. Between
  // processes of one host, which need no TCP, it also answers for a process that is stopped. 0: no
  // keepalive.
  std::chrono::milliseconds keepalive{0};
  // Messages may be sent while the connection is not established yet. They wait, within
  // Limits::send_queue_messages and send_queue_bytes, go first when it is, and fail with it if it
  // never is: each with the callback `failed`, before `error`. A message that is longer than the
  // peer allows, which is known only then, fails with EMSGSIZE.
  bool queue_while_connecting = false;
  void* user = nullptr;  // returned by Connection::user()
};

// Counters of one connection.
struct Statistics {
  std::uint64_t messages_sent = 0;  // whose status became `sent`
  std::uint64_t bytes_sent = 0;
  std::uint64_t frames_sent = 0;        // that carried messages, one or several
  std::uint64_t messages_received = 0;  // handed over
  std::uint64_t bytes_received = 0;
  std::uint64_t messages_waiting = 0;  // to be sent
  std::uint64_t credit_waits = 0;      // how often sending had to wait for credits of the peer
  std::chrono::nanoseconds waited_for_credits{0};
};

enum class State { connecting, established, disconnecting, ended };

// A handle of a connection, cheap to copy; all copies refer to the same connection. The loop keeps
// the connection until it has ended, even without handles. To be used in the loop's thread: the one
// that is inside of EventLoop::step() or run() or, while none is, any one thread. Calls from
// another thread throw std::logic_error; use EventLoop::post() there.
class Connection {
 public:
  // A handle of no connection: it converts to false, and calls throw std::logic_error.
  Connection() = default;
  // Whether it is the handle of a connection, which may have ended.
  [[nodiscard]] explicit operator bool() const { return link_ != nullptr; }

  // Each of the following sends one message of 0 bytes or more.
  // Copies the bytes during the call.
  WEFT_API Sending send(std::span<const std::byte> bytes, const SendOptions& options = {});
  Sending send(std::string_view text, const SendOptions& options = {}) {
    return send(std::as_bytes(std::span(text)), options);
  }
  Sending send(const char* text, const SendOptions& options = {}) {
    return send(std::string_view(text), options);
  }
  // Sends from the buffer without a copy. The message shares the buffer's memory until it is sent.
  WEFT_API Sending send(const Buffer& buffer, const SendOptions& options = {});
  // Sends the pieces one behind the other, without a copy, from memory of the application that is
  // registered in domain(). It must stay unchanged until the message is sent or has failed. If the
  // message is long, the peer may read exactly these bytes until then.
  WEFT_API Sending send(std::span<const LocalSlice> pieces, const SendOptions& options = {});

  // A buffer to send on this or another connection of the same loop and device. Throws Error.
  [[nodiscard]] WEFT_API Buffer allocate(std::size_t bytes) const;
  // The protection domain to register memory in. Throws Error(ENOTCONN) while the device is not
  // known.
  [[nodiscard]] WEFT_API const verbs::ProtectionDomain& domain() const;

  // Takes the next message without a wait, if there is no `message` callback; nothing if none has
  // arrived. Taking it counts as its delivery. Works after the end of the connection as well.
  [[nodiscard]] WEFT_API std::optional<Received> try_receive();

  // --- For coroutines
  // Waits until the connection is established. Throws the Error that has prevented it, or Error:
  // ETIMEDOUT at the deadline, ECANCELED by `stop`.
  [[nodiscard]] WEFT_API detail::Wait<void> established(Deadline deadline = Deadline::never(),
                                                        std::stop_token stop = {}) const;
  // Waits for the next message, and takes it as try_receive() does; nothing if the connection or
  // the wait has ended.
  [[nodiscard]] WEFT_API detail::Wait<std::optional<Received>> receive(
      Deadline deadline = Deadline::never(), std::stop_token stop = {}) const;
  // Waits until writable(); false if the connection or the wait has ended.
  [[nodiscard]] WEFT_API detail::Wait<bool> until_writable(Deadline deadline = Deadline::never(),
                                                           std::stop_token stop = {}) const;

  // --- The end
  // Ends the connection at once; messages that are not sent fail. Their callbacks, and
  // `disconnected`, are called by the loop later.
  WEFT_API void disconnect();
  // Ends the connection when all messages are sent, and delivered where that was asked for. No more
  // can be sent.
  WEFT_API void disconnect_after_sending();

  // How far the connection has come. After `disconnected` or `error` it is `ended`.
  [[nodiscard]] WEFT_API State state() const;
  // Whether a message of a few bytes would be accepted for sending.
  [[nodiscard]] WEFT_API bool writable() const;
  // The longest message that both sides allow; 0 before the connection is established.
  [[nodiscard]] WEFT_API std::uint64_t max_message_bytes() const;
  // A copy of the counters. They stay after the end.
  [[nodiscard]] WEFT_API Statistics statistics() const;
  // The private data that the peer's application has sent when it connected or accepted.
  [[nodiscard]] WEFT_API std::span<const std::byte> peer_private_data() const;
  // "192.0.2.1:7174"; empty while not known, and after the end.
  [[nodiscard]] WEFT_API std::string local_address() const;
  // The address of the peer; empty while not known, and after the end.
  [[nodiscard]] WEFT_API std::string peer_address() const;

  // Replaces all callbacks, from the next call on. Messages that wait because there was no
  // `message` callback go to the new one.
  WEFT_API void set_handlers(Handlers handlers);
  // The pointer of Options::user or of the last set_user().
  [[nodiscard]] WEFT_API void* user() const;
  // Stores a pointer for the application, which this library does not use.
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
