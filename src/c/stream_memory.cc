// The C interface of streams: memory that is sent from, or written to, without a copy. See
// weft/c/stream.h.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "c/connection_handle.h"
#include "c/outcome.h"
#include "c/stream_handle.h"

using namespace weft::c;

namespace {

// The size of a slice is a number of 32 bits.
constexpr std::size_t longest_slice = std::numeric_limits<std::uint32_t>::max();

}  // namespace

int weft_stream_register(weft_stream* stream, void* memory, size_t bytes, weft_buffer** buffer) {
  return guarded([&] {
    const std::span<std::byte> span(static_cast<std::byte*>(memory), bytes);
    *buffer =
        new weft_buffer{weft::connection::Buffer(stream->stream.domain().register_memory(span))};
    return 0;
  });
}

ssize_t weft_stream_send_registered(weft_stream* stream, weft_buffer* buffer, size_t offset,
                                    size_t count, int timeout_ms) {
  return guarded([&] {
    // Of a part that is too long for a slice, the beginning is sent. The whole of it is compared
    // with the buffer first, without a sum that could wrap around.
    const std::size_t size = buffer->buffer.size_bytes();
    const bool within = offset <= size && count <= size - offset;
    const std::size_t sent = within ? std::min(count, longest_slice) : count;
    return result_of(*stream, stream->stream.send_registered(buffer->slice(offset, sent),
                                                             deadline_of(timeout_ms)));
  });
}

int64_t weft_stream_map(weft_stream* stream, void* memory, size_t bytes, int64_t offset,
                        int timeout_ms) {
  return guarded([&]() -> std::int64_t {
    if (offset < -1) return fail(EINVAL, "an offset of a mapped buffer is -1 or not negative");
    const std::span<std::byte> span(static_cast<std::byte*>(memory), bytes);
    return stream->stream.map_buffer(span, offset, deadline_of(timeout_ms));
  });
}

int weft_stream_unmap(weft_stream* stream, void* memory, size_t bytes, int timeout_ms) {
  return guarded([&] {
    stream->stream.unmap_buffer(bytes_of(memory, bytes), deadline_of(timeout_ms));
    return 0;
  });
}

ssize_t weft_stream_write_mapped(weft_stream* stream, const void* bytes, size_t count,
                                 uint64_t offset, int timeout_ms) {
  return guarded([&] {
    return result_of(*stream, stream->stream.write_mapped(bytes_of(bytes, count), offset,
                                                          deadline_of(timeout_ms)));
  });
}
