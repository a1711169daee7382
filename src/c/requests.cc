// The C interface of connections: requests and their outcomes. See weft/c/connection.h.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "c/connection_handle.h"
#include "c/outcome.h"

namespace {

using namespace weft::c;
using weft::Error;
using weft::connection::Connection;
using weft::connection::Outcome;
using weft::connection::Queue;
using weft::connection::RemoteBuffer;
using weft::connection::SendFlags;

SendFlags flags_of(int flags) {
  // An unknown bit is refused, so that a later release can give it a meaning.
  constexpr int known = WEFT_UNSIGNALED | WEFT_SOLICITED | WEFT_FENCE | WEFT_COPIED | WEFT_KEEP;
  if ((flags & ~known) != 0) {
    throw Error(EINVAL, "the flags of a request have a bit that has no meaning");
  }
  // In C no flag is the usual request, which is signaled, so that the flag means the opposite.
  auto result = (flags & WEFT_UNSIGNALED) != 0 ? SendFlags::none : SendFlags::signaled;
  if ((flags & WEFT_SOLICITED) != 0) result = result | SendFlags::solicited;
  if ((flags & WEFT_FENCE) != 0) result = result | SendFlags::fence;
  if ((flags & WEFT_COPIED) != 0) result = result | SendFlags::copied;
  return result;
}

// The tag has a meaning for the programs only.
RemoteBuffer remote_of(const weft_remote_buffer& remote) {
  return {remote.address, remote.bytes, remote.rkey};
}

// Turns the errno value of a post_ call into a result.
int posted(int error_number) {
  switch (error_number) {
    case 0:
      return 0;
    case ENOMEM:
      return fail(ENOMEM, "the queue is full: wait for outcomes of earlier requests");
    case EMSGSIZE:
      return fail(EMSGSIZE, "the transfer is not within the peer's buffer");
    case EINVAL:
      return fail(EINVAL,
                  "the device does not accept the request: with WEFT_COPIED it may have "
                  "`inline_bytes` bytes, and an atomic needs an address that is a multiple "
                  "of eight");
    default:
      return fail(error_number, std::string("the device does not accept the request: ") +
                                    std::strerror(error_number));
  }
}

// Posts by `post`, which takes a LocalSlice or, with WEFT_KEEP, a KeptSlice.
template <typename Post>
int post(weft_buffer* buffer, size_t offset, size_t bytes, int flags, const Post& post) {
  const SendFlags meant = flags_of(flags);
  if ((flags & WEFT_KEEP) != 0) return posted(post(buffer->keep(offset, bytes), meant));
  return posted(post(buffer->slice(offset, bytes), meant));
}

Queue queue_of(weft_queue queue) {
  return queue == WEFT_RECEIVES ? Queue::receive : Queue::send;
}

// The whole of an outcome in C.
weft_completion completion_of(const Outcome& outcome) {
  weft_completion completion{};
  completion.id = outcome.id;
  completion.status = static_cast<std::int32_t>(outcome.status);
  if (!outcome.ok()) return completion;
  completion.opcode = static_cast<std::int32_t>(outcome.opcode);
  completion.bytes = outcome.size_bytes;
  completion.immediate = outcome.immediate.value_or(0);
  completion.has_immediate = outcome.immediate ? 1 : 0;
  completion.invalidated_rkey = outcome.invalidated_rkey.value_or(0);
  return completion;
}

// A completion gets the opcode by a cast.
static_assert(static_cast<int>(IBV_WC_SEND) == WEFT_SEND);
static_assert(static_cast<int>(IBV_WC_RDMA_WRITE) == WEFT_WRITE);
static_assert(static_cast<int>(IBV_WC_RDMA_READ) == WEFT_READ);
static_assert(static_cast<int>(IBV_WC_COMP_SWAP) == WEFT_COMPARE_AND_SWAP);
static_assert(static_cast<int>(IBV_WC_FETCH_ADD) == WEFT_FETCH_AND_ADD);
static_assert(static_cast<int>(IBV_WC_RECV) == WEFT_RECEIVE);
static_assert(static_cast<int>(IBV_WC_RECV_RDMA_WITH_IMM) == WEFT_RECEIVE_OF_WRITE);

}  // namespace

// In all of these, slice() and keep() throw std::out_of_range for a part that is not within the
// buffer.
int weft_post_receive(weft_connection* connection, weft_buffer* buffer, size_t offset, size_t bytes,
                      uint64_t id) {
  return guarded([&] {
    return posted(connection->endpoint().post_receive(buffer->slice(offset, bytes), id));
  });
}

int weft_post_receive_kept(weft_connection* connection, weft_buffer* buffer, size_t offset,
                           size_t bytes, uint64_t id) {
  return guarded(
      [&] { return posted(connection->endpoint().post_receive(buffer->keep(offset, bytes), id)); });
}

int weft_post_send(weft_connection* connection, weft_buffer* buffer, size_t offset, size_t bytes,
                   uint64_t id, int flags) {
  return guarded([&] {
    return post(buffer, offset, bytes, flags, [&](const auto& slice, SendFlags meant) {
      return connection->established().post_send(slice, id, meant);
    });
  });
}

int weft_post_write(weft_connection* connection, weft_buffer* buffer, size_t offset, size_t bytes,
                    const weft_remote_buffer* remote, uint64_t remote_offset, uint64_t id,
                    int flags) {
  return guarded([&] {
    return post(buffer, offset, bytes, flags, [&](const auto& slice, SendFlags meant) {
      return connection->established().post_write(slice, remote_of(*remote), remote_offset, id,
                                                  meant);
    });
  });
}

int weft_post_read(weft_connection* connection, weft_buffer* buffer, size_t offset, size_t bytes,
                   const weft_remote_buffer* remote, uint64_t remote_offset, uint64_t id,
                   int flags) {
  return guarded([&] {
    return post(buffer, offset, bytes, flags, [&](const auto& slice, SendFlags meant) {
      return connection->established().post_read(slice, remote_of(*remote), remote_offset, id,
                                                 meant);
    });
  });
}

int weft_post_send_with_immediate(weft_connection* connection, weft_buffer* buffer, size_t offset,
                                  size_t bytes, uint32_t immediate, uint64_t id, int flags) {
  return guarded([&] {
    return post(buffer, offset, bytes, flags, [&](const auto& slice, SendFlags meant) {
      return connection->established().post_send_with_immediate(slice, immediate, id, meant);
    });
  });
}

int weft_post_write_with_immediate(weft_connection* connection, weft_buffer* buffer, size_t offset,
                                   size_t bytes, const weft_remote_buffer* remote,
                                   uint64_t remote_offset, uint32_t immediate, uint64_t id,
                                   int flags) {
  return guarded([&] {
    return post(buffer, offset, bytes, flags, [&](const auto& slice, SendFlags meant) {
      return connection->established().post_write_with_immediate(
          slice, remote_of(*remote), remote_offset, immediate, id, meant);
    });
  });
}

int weft_post_send_with_invalidate(weft_connection* connection, weft_buffer* buffer, size_t offset,
                                   size_t bytes, uint32_t rkey, uint64_t id, int flags) {
  return guarded([&] {
    return post(buffer, offset, bytes, flags, [&](const auto& slice, SendFlags meant) {
      return connection->established().post_send_with_invalidate(slice, rkey, id, meant);
    });
  });
}

int weft_post_fetch_and_add(weft_connection* connection, weft_buffer* buffer, size_t offset,
                            const weft_remote_buffer* remote, uint64_t remote_offset,
                            uint64_t addend, uint64_t id, int flags) {
  return guarded([&] {
    return post(buffer, offset, sizeof addend, flags, [&](const auto& slice, SendFlags meant) {
      return connection->established().post_fetch_and_add(slice, remote_of(*remote), remote_offset,
                                                          addend, id, meant);
    });
  });
}

int weft_post_compare_and_swap(weft_connection* connection, weft_buffer* buffer, size_t offset,
                               const weft_remote_buffer* remote, uint64_t remote_offset,
                               uint64_t expected, uint64_t desired, uint64_t id, int flags) {
  return guarded([&] {
    return post(buffer, offset, sizeof desired, flags, [&](const auto& slice, SendFlags meant) {
      return connection->established().post_compare_and_swap(
          slice, remote_of(*remote), remote_offset, expected, desired, id, meant);
    });
  });
}

int weft_connection_await(weft_connection* connection, weft_queue queue, weft_outcome* outcomes,
                          size_t count, int timeout_ms) {
  return guarded([&] {
    // The outcomes are copied, because the C++ ones are not the program's.
    const auto found =
        connection->established().await(queue_of(queue), count, deadline_of(timeout_ms));
    std::ranges::transform(found, outcomes, [](const Outcome& outcome) {
      return weft_outcome{outcome.id, static_cast<std::int32_t>(outcome.status),
                          outcome.size_bytes};
    });
    return static_cast<int>(found.size());
  });
}

int weft_connection_await_completions(weft_connection* connection, weft_queue queue,
                                      weft_completion* completions, size_t size, size_t count,
                                      int timeout_ms) {
  return guarded([&] {
    check_size(size, "weft_completion", "passing sizeof(weft_completion)");
    const auto found =
        connection->established().await(queue_of(queue), count, deadline_of(timeout_ms));
    auto* at = reinterpret_cast<std::byte*>(completions);
    for (const Outcome& outcome : found) {
      // The program's structure may be shorter or longer than this library's.
      const weft_completion completion = completion_of(outcome);
      std::memset(at, 0, size);
      std::memcpy(at, &completion, std::min(size, sizeof completion));
      at += size;
    }
    return static_cast<int>(found.size());
  });
}

// The descriptor belongs to the connection: a program must not close it.
int weft_connection_fd(weft_connection* connection, weft_queue queue) {
  return guarded([&] { return connection->established().fd(queue_of(queue)); });
}
