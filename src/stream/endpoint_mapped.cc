// Buffers that this side maps for the peer to write to. A change is a message of its own, so these
// calls take the turn of the calls that send.
#include "stream/endpoint.h"

namespace weft::stream::detail {

// Writes a row of the peer's table. Returns when the peer's device has it: the row then is in force
// before anything that is sent later. Throws Error.
void Endpoint::change_row(Lock& lock, std::uint32_t row, const Mapping& mapping,
                          const Deadline& deadline) {
  const auto ready = [this] {
    return send_error() != 0 ||
           (connector_.phase() == Phase::open && channel_.flow().can_send_message());
  };
  if (!wait(lock, deadline, ready)) {
    throw Error(EAGAIN, "the peer has no receive free for a mapping");
  }
  if (const int error = send_error()) throw Error(error, "cannot send a mapping to the peer");
  // The wait may have ended by its deadline in the same moment.
  if (!channel_.flow().take_message()) {
    throw Error(EAGAIN, "the peer has no receive free for a mapping");
  }
  if (const int error = channel_.send_row(row, mapping)) {
    throw Error(error, "cannot send a mapping to the peer");
  }
  row_completes_ = true;
  await_completion(lock);
  row_completes_ = false;
}

std::int64_t Endpoint::map_buffer(std::span<std::byte> memory, std::int64_t offset,
                                  const Deadline& deadline) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, sending_, deadline);
  if (!turn.taken()) throw Error(closed_ ? ECANCELED : EAGAIN, "another call is sending");
  const auto settled = [this] { return connector_.phase() == Phase::open || send_error() != 0; };
  if (!wait(lock, deadline, settled)) throw Error(EAGAIN, "the stream is not connected yet");
  if (const int error = send_error()) throw Error(error, "cannot map a buffer");
  if (memory.empty()) throw Error(EINVAL, "cannot map a buffer of no bytes");
  Maps& maps = channel_.local_maps();
  const auto at = offset < 0 ? maps.next_offset() : static_cast<std::uint64_t>(offset);
  if (maps.overlaps(at, memory.size())) throw Error(EINVAL, "the offsets are mapped already");
  const auto row = maps.free_row();
  if (!row) throw Error(ENOBUFS, "the peer has no room for another mapped buffer");
  auto region = std::make_shared<verbs::TypedRegion<std::byte>>(
      channel_.transport().domain().register_memory(memory, verbs::Access::remote_write));
  const Mapping mapping{at, region->remote(), region};
  // Before the row is sent: the peer may write as soon as it has it. If the row cannot be sent, the
  // row and its offsets become free again, and the memory is deregistered.
  maps.set(*row, mapping);
  try {
    change_row(lock, *row, mapping, deadline);
    // The connection may have broken before the peer had the row.
    if (const int error = channel_.error()) throw Error(error, "cannot map a buffer");
  } catch (...) {
    channel_.local_maps().set(*row, {});
    throw;
  }
  leave();
  return static_cast<std::int64_t>(at);
}

// The peer's row is cleared first; only then the memory is deregistered. If the stream is broken
// the peer cannot write any more, and there is nothing to send.
void Endpoint::unmap_buffer(std::span<const std::byte> memory, const Deadline& deadline) {
  Lock lock(mutex_);
  const Turn turn(*this, lock, sending_, deadline);
  if (!turn.taken()) throw Error(closed_ ? ECANCELED : EAGAIN, "another call is sending");
  Maps& maps = channel_.local_maps();
  // By exact address and length: a part of a buffer cannot be unmapped.
  const auto row = maps.find(reinterpret_cast<std::uint64_t>(memory.data()), memory.size());
  if (!row) throw Error(EINVAL, "the buffer is not mapped");
  if (send_error() == 0) change_row(lock, *row, {}, deadline);
  maps.set(*row, {});
  leave();
}

}  // namespace weft::stream::detail
