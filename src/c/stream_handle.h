// What the files of the C interface of streams share: streams, listeners and options.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "c/stream_acceptor.h"
#include "weft/c/stream.h"
#include "weft/stream.hpp"

struct weft_stream {
  explicit weft_stream(weft::stream::Stream&& from) : stream(std::move(from)) {}

  weft::stream::Stream stream;
};

struct weft_stream_listener {
  weft::c::StreamAcceptor acceptor;
};

namespace weft::c {

// What the options say, with the private data, which the C++ layer takes separately.
// The bytes are copied, since a listener sends them with each stream that it accepts later.
struct StreamSettings {
  stream::Options options;
  std::vector<std::byte> private_data;
};

StreamSettings stream_settings_of(const weft_stream_options* from);

}  // namespace weft::c
