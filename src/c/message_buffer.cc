// The C interface of messages: memory that is sent and received without a copy, and counters.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "c/connection_handle.h"
#include "c/link.h"
#include "c/outcome.h"

using namespace weft::c;
using weft::connection::LocalSlice;

int weft_link_allocate(weft_link* link, size_t bytes, weft_message_buffer** buffer) {
  return guarded([&] {
    *buffer = new weft_message_buffer{link->connection.allocate(bytes), {}};
    return 0;
  });
}

int weft_link_send_buffer(weft_link* link, weft_message_buffer* buffer, uint32_t type, uint64_t tag,
                          int flags, uint64_t* number) {
  return guarded([&] {
    return send_message(*link, type, tag, flags, number, [&](const auto& options) {
      return link->connection.send(buffer->buffer, options);
    });
  });
}

int weft_link_register(weft_link* link, void* memory, size_t bytes, weft_buffer** buffer) {
  return guarded([&] {
    const std::span<std::byte> span(static_cast<std::byte*>(memory), bytes);
    *buffer =
        new weft_buffer{weft::connection::Buffer(link->connection.domain().register_memory(span))};
    return 0;
  });
}

int weft_link_send_parts(weft_link* link, const weft_part* parts, size_t count, uint32_t type,
                         uint64_t tag, int flags, uint64_t* number) {
  return guarded([&] {
    if (count > weft::message::max_pieces) {
      return fail(EINVAL, "a message has more parts than the 16 that are possible");
    }
    std::array<LocalSlice, weft::message::max_pieces> pieces;
    std::transform(parts, parts + count, pieces.begin(), [](const weft_part& part) {
      return part.buffer->slice(part.offset, part.bytes);
    });
    return send_message(*link, type, tag, flags, number, [&](const auto& options) {
      return link->connection.send(std::span<const LocalSlice>(pieces).first(count), options);
    });
  });
}

int weft_message_keep(const weft_message* message, weft_message_buffer** buffer) {
  return guarded([&] {
    // The callback gets only messages of this type.
    const auto& arrived = static_cast<const ArrivedMessage&>(*message);
    if (arrived.count != 0 && arrived.received->size_bytes() == 0) {
      return fail(EALREADY, "the message was kept already");
    }
    auto made = std::make_unique<weft_message_buffer>();
    made->buffer = arrived.received->keep();
    *buffer = made.release();
    return 0;
  });
}

void* weft_message_buffer_data(weft_message_buffer* buffer) {
  return buffer->buffer.bytes().data();
}

size_t weft_message_buffer_size(weft_message_buffer* buffer) {
  return buffer->buffer.size_bytes();
}

void weft_message_buffer_truncate(weft_message_buffer* buffer, size_t bytes) {
  buffer->buffer.truncate(bytes);
}

void weft_message_buffer_free(weft_message_buffer* buffer) {
  if (buffer != nullptr && !buffer->maker.is_parent()) delete buffer;
}

int weft_link_get_statistics(weft_link* link, weft_link_statistics* statistics) {
  return guarded([&] {
    WEFT_C_CHECK(statistics, weft_link_statistics, WEFT_LINK_STATISTICS);
    const auto now = link->connection.statistics();
    const weft_link_statistics all{sizeof all,
                                   now.messages_sent,
                                   now.bytes_sent,
                                   now.frames_sent,
                                   now.messages_received,
                                   now.bytes_received,
                                   now.messages_waiting,
                                   now.credit_waits,
                                   static_cast<std::uint64_t>(now.waited_for_credits.count())};
    copy_structure(all, statistics);
    return 0;
  });
}
