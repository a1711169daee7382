// What the files of the C interface of streams share: streams, listeners and options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "c/stream_acceptor.h"
#include "c/stream_events.h"
#include "weft/c/stream.h"
#include "weft/stream.hpp"

struct weft_stream {
  explicit weft_stream(weft::stream::Stream&& from) : stream(std::move(from)) {}

  weft::stream::Stream stream;
};

struct weft_stream_listener {
  weft_stream_listener(weft::stream::Listener&& listener, std::vector<std::byte> private_data)
      : acceptor(std::move(listener), std::move(private_data)) {}
  weft_stream_listener(const weft_stream_listener&) = delete;
  weft_stream_listener& operator=(const weft_stream_listener&) = delete;
  ~weft_stream_listener() { detach(); }

  // Ends weft_stream_listener_attach().
  void detach();

  weft::c::StreamAcceptor acceptor;
  std::shared_ptr<weft::c::StreamEvents> events;  // that it is attached to
  std::uint64_t attachment = 0;
};

struct weft_stream_request {
  weft::stream::Request request;
  std::vector<std::byte> private_data;  // of the listener's options
};

namespace weft::c {

// What the options say, with the private data, which the C++ layer takes separately.
// The bytes are copied, since a listener sends them with each stream that it accepts later.
struct StreamSettings {
  stream::Options options;
  std::vector<std::byte> private_data;
};

StreamSettings stream_settings_of(const weft_stream_options* from);

// The number of bytes that were moved, 0 at the end of the stream, or a negative errno value.
ssize_t result_of(const weft_stream& stream, const stream::Transfer& transfer);

}  // namespace weft::c
