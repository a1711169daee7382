// The C interface of byte streams: weft/c/stream.h.
#include "weft/c/stream.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "c/outcome.h"
#include "c/stream_handle.h"
#include "weft/stream.hpp"

namespace {

using namespace weft::c;
using weft::Deadline;
using weft::stream::Listener;
using weft::stream::Stream;
using weft::stream::Transfer;
using weft::stream::TransferStatus;

// The flags of weft_stream_receive_with().
weft::stream::ReceiveFlags flags_of(int flags) {
  if ((flags & ~(WEFT_STREAM_PEEK | WEFT_STREAM_WAIT_ALL)) != 0) {
    throw weft::Error(EINVAL, "the flags of a receive have a bit that has no meaning");
  }
  return {.peek = (flags & WEFT_STREAM_PEEK) != 0, .wait_all = (flags & WEFT_STREAM_WAIT_ALL) != 0};
}

// Writes an address; -ENOTCONN for an empty text, which is the address of a stream without one.
int copy_address(const std::string& address, char* text, size_t room) {
  if (address.empty()) return fail(ENOTCONN, "the stream has no address yet: it is not connected");
  return copy_text(address, text, room);
}

}  // namespace

ssize_t weft::c::result_of(const weft_stream& stream, const Transfer& outcome) {
  // The text with the peer's address is made for failures only, because a timeout is usual for a
  // program that polls.
  switch (outcome.status) {
    case TransferStatus::ok:
      return static_cast<ssize_t>(outcome.bytes);
    case TransferStatus::end:
      return 0;
    case TransferStatus::would_block:
      return fail(EAGAIN, "no byte could be moved until the timeout");
    case TransferStatus::failed:
      break;
  }
  const std::string peer = stream.stream.peer_address();  // empty: it was never connected
  return fail(outcome.error_number, "the stream " + (peer.empty() ? peer : "to " + peer + " ") +
                                        "has failed: " + std::strerror(outcome.error_number));
}

int weft_stream_connect(weft_stream** stream, const char* host, uint16_t port,
                        const weft_stream_options* options, int timeout_ms) {
  return guarded([&] {
    const auto settings = stream_settings_of(options);
    auto made = std::make_unique<weft_stream>(Stream(settings.options));
    made->stream.connect(address_of(host, port), deadline_of(timeout_ms), settings.private_data);
    // From here on the program owns the stream. One that could not connect is freed by `made`.
    *stream = made.release();
    return 0;
  });
}

int weft_stream_start_connecting(weft_stream** stream, const char* host, uint16_t port,
                                 const weft_stream_options* options) {
  return guarded([&] {
    const auto settings = stream_settings_of(options);
    auto made = std::make_unique<weft_stream>(Stream(settings.options));
    made->stream.start_connecting(address_of(host, port), settings.private_data);
    *stream = made.release();
    return 0;
  });
}

int weft_stream_await_connected(weft_stream* stream, int timeout_ms) {
  return guarded_await([&] {
    if (stream->stream.await_connected(deadline_of(timeout_ms))) return 0;
    return fail(EAGAIN, "the stream was not connected until the timeout");
  });
}

ssize_t weft_stream_send(weft_stream* stream, const void* bytes, size_t count, int timeout_ms) {
  return guarded([&] {
    return result_of(*stream, stream->stream.send(bytes_of(bytes, count), deadline_of(timeout_ms)));
  });
}

ssize_t weft_stream_receive(weft_stream* stream, void* into, size_t count, int timeout_ms) {
  return guarded([&]() -> ssize_t {
    const std::span<std::byte> room(static_cast<std::byte*>(into), count);
    return result_of(*stream, stream->stream.receive(room, deadline_of(timeout_ms)));
  });
}

ssize_t weft_stream_receive_with(weft_stream* stream, void* into, size_t count, int flags,
                                 int timeout_ms) {
  return guarded([&]() -> ssize_t {
    const std::span<std::byte> room(static_cast<std::byte*>(into), count);
    return result_of(*stream,
                     stream->stream.receive(room, deadline_of(timeout_ms), flags_of(flags)));
  });
}

size_t weft_stream_available(weft_stream* stream) {
  return guarded_or(0, [&] { return stream->stream.bytes_available(); });
}

ssize_t weft_stream_view(weft_stream* stream, const void** bytes, int timeout_ms) {
  return guarded([&]() -> ssize_t {
    const auto view = stream->stream.view(deadline_of(timeout_ms));
    *bytes = view.bytes.data();
    return result_of(*stream, view.transfer);
  });
}

int weft_stream_consume(weft_stream* stream, size_t count) {
  return guarded([&] {
    stream->stream.consume(count);
    return 0;
  });
}

int weft_stream_fd(weft_stream* stream) {
  return guarded([&] { return stream->stream.fd(); });
}

int weft_stream_send_fd(weft_stream* stream) {
  return guarded([&] { return stream->stream.send_fd(); });
}

int weft_stream_finish(weft_stream* stream) {
  return guarded([&] {
    stream->stream.finish();
    return 0;
  });
}

int weft_stream_close(weft_stream* stream, int linger_ms) {
  return guarded([&] {
    if (stream->stream.close(deadline_of(linger_ms))) return 0;
    // The C++ layer does not distinguish the two reasons, the deadline and a lost connection.
    return fail(EAGAIN, "it is unknown whether the peer has received everything that was sent");
  });
}

// Nothing is waited for: the peer gets ECONNRESET behind the bytes that have arrived.
int weft_stream_abort(weft_stream* stream) {
  return guarded([&] {
    stream->stream.abort();
    return 0;
  });
}

// The destructor closes the stream, and so may block for Options::linger.
void weft_stream_free(weft_stream* stream) {
  delete stream;
}

int weft_stream_local_address(weft_stream* stream, char* text, size_t room) {
  return guarded([&] { return copy_address(stream->stream.local_address(), text, room); });
}

int weft_stream_peer_address(weft_stream* stream, char* text, size_t room) {
  return guarded([&] { return copy_address(stream->stream.peer_address(), text, room); });
}

// The bytes belong to the stream.
const void* weft_stream_peer_private_data(weft_stream* stream, size_t* count) {
  *count = 0;
  return guarded_or(nullptr, [&]() -> const void* {
    const auto bytes = stream->stream.peer_private_data();
    *count = bytes.size();
    return bytes.data();
  });
}

int weft_stream_listen(weft_stream_listener** listener, const char* host, uint16_t port,
                       const weft_stream_options* options, int backlog) {
  return guarded([&] {
    auto settings = stream_settings_of(options);
    // The port is free again if listen() throws, because `made` owns it until the end.
    Listener made(address_of(host, port), settings.options);
    made.listen(backlog);
    *listener = new weft_stream_listener(std::move(made), std::move(settings.private_data));
    return 0;
  });
}

int weft_stream_accept(weft_stream_listener* listener, weft_stream** stream, int timeout_ms) {
  return guarded([&] {
    auto accepted = listener->acceptor.accept(deadline_of(timeout_ms));
    if (!accepted) return fail(EAGAIN, "no peer has connected until the timeout");
    *stream = new weft_stream(std::move(*accepted));
    return 0;
  });
}

uint16_t weft_stream_listener_port(weft_stream_listener* listener) {
  return guarded_or(0, [&] { return listener->acceptor.listener().port(); });
}

int weft_stream_listener_fd(weft_stream_listener* listener) {
  return guarded([&] { return listener->acceptor.fd(); });
}

void weft_stream_listener_free(weft_stream_listener* listener) {
  delete listener;
}
