// The C interface of streams: options, requests of peers, and counters. See weft/c/stream.h.
#include <algorithm>
#include <chrono>
#include <memory>
#include <type_traits>
#include <utility>

#include "c/outcome.h"
#include "c/stream_handle.h"

using namespace weft::c;
using weft::stream::Variant;

static_assert(static_cast<int>(Variant::automatic) == WEFT_STREAM_AUTOMATIC);
static_assert(static_cast<int>(Variant::immediate) == WEFT_STREAM_IMMEDIATE);
static_assert(static_cast<int>(Variant::write_and_send) == WEFT_STREAM_WRITE_AND_SEND);

StreamSettings weft::c::stream_settings_of(const weft_stream_options* from) {
  StreamSettings settings;
  if (from == nullptr) return settings;
  WEFT_C_CHECK(from, weft_stream_options, WEFT_STREAM_OPTIONS);
  auto& options = settings.options;
  WEFT_C_TAKE(options.send_buffer_bytes, from, send_buffer_bytes);
  WEFT_C_TAKE(options.receive_buffer_bytes, from, receive_buffer_bytes);
  WEFT_C_TAKE(options.growth_bytes, from, growth_bytes);
  // The last of the three members: a structure that has it has the others too.
  if (WEFT_C_HAS(from, keepalive_probes) && from->keepalive_idle_ms != 0) {
    weft::stream::Keepalive keepalive;
    keepalive.idle = std::chrono::milliseconds(from->keepalive_idle_ms);
    if (from->keepalive_interval_ms != 0) {
      keepalive.interval = std::chrono::milliseconds(from->keepalive_interval_ms);
    }
    WEFT_C_TAKE(keepalive.probes, from, keepalive_probes);
    options.keepalive = keepalive;
  }
  WEFT_C_TAKE(options.send_queue, from, send_queue);
  WEFT_C_TAKE(options.receive_queue, from, receive_queue);
  if (WEFT_C_HAS(from, spin_us) && from->spin_us != 0) {
    options.spin = std::chrono::microseconds(std::max<std::int64_t>(from->spin_us, 0));
  }
  if (WEFT_C_HAS(from, linger_ms) && from->linger_ms != 0) {
    options.linger = std::chrono::milliseconds(from->linger_ms);
  }
  WEFT_C_TAKE(options.mapped_buffers, from, mapped_buffers);
  if (WEFT_C_HAS(from, variant)) {
    if (from->variant < WEFT_STREAM_AUTOMATIC || from->variant > WEFT_STREAM_WRITE_AND_SEND) {
      throw weft::Error(EINVAL, "a stream's variant is none of the WEFT_STREAM_ ones");
    }
    options.variant = static_cast<Variant>(from->variant);
  }
  if (WEFT_C_HAS(from, ipv6_only)) options.ipv6_only = from->ipv6_only != 0;
  if (WEFT_C_HAS(from, private_data_bytes)) {
    // The length is the later member: a structure that has it has the pointer too.
    const auto bytes = bytes_of(from->private_data, from->private_data_bytes);
    settings.private_data.assign(bytes.begin(), bytes.end());
  }
  return settings;
}

int weft_stream_next(weft_stream_listener* listener, weft_stream_request** request,
                     int timeout_ms) {
  return guarded([&] {
    auto found = listener->acceptor.next(deadline_of(timeout_ms));
    if (!found) return fail(EAGAIN, "no peer has asked to connect until the timeout");
    *request = new weft_stream_request{std::move(*found), listener->acceptor.private_data()};
    return 0;
  });
}

// The bytes belong to the request.
const void* weft_stream_request_private_data(weft_stream_request* request, size_t* count) {
  *count = 0;
  return guarded_or(nullptr, [&]() -> const void* {
    const auto bytes = request->request.private_data();
    *count = bytes.size();
    return bytes.data();
  });
}

int weft_stream_request_peer_address(weft_stream_request* request, char* text, size_t room) {
  return guarded([&] { return copy_text(request->request.peer_address(), text, room); });
}

int weft_stream_request_accept(weft_stream_request* request, weft_stream** stream,
                               const weft_stream_options* options) {
  // The request is freed in any case, also if it cannot be accepted.
  const std::unique_ptr<weft_stream_request> owner(request);
  return guarded([&] {
    if (options == nullptr) {
      *stream = new weft_stream(std::move(request->request).accept(request->private_data));
      return 0;
    }
    const auto settings = stream_settings_of(options);
    *stream = new weft_stream(
        std::move(request->request).accept(settings.private_data, settings.options));
    return 0;
  });
}

int weft_stream_request_reject(weft_stream_request* request, const void* private_data,
                               size_t private_data_bytes) {
  const std::unique_ptr<weft_stream_request> owner(request);
  return guarded([&] {
    std::move(request->request).reject(bytes_of(private_data, private_data_bytes));
    return 0;
  });
}

int weft_stream_get_statistics(weft_stream* stream, weft_stream_statistics* statistics) {
  return guarded([&] {
    WEFT_C_CHECK(statistics, weft_stream_statistics, WEFT_STREAM_STATISTICS);
    const auto now = stream->stream.statistics();
    const weft_stream_statistics all{sizeof all,
                                     now.bytes_sent,
                                     now.bytes_received,
                                     now.data_messages_sent,
                                     now.data_messages_received,
                                     now.updates_sent,
                                     now.updates_received,
                                     now.refused_sends,
                                     now.answered_probes,
                                     now.placed_bytes_sent};
    copy_structure(all, statistics);
    return 0;
  });
}
