#include "stream/shared_ring.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "base/size.h"
#include "base/system_call.h"
#include "stream/ring_map_wire.h"

namespace weft::stream::detail {
namespace {

// docs/stream-protocol.md has these numbers.
static_assert(offsetof(RingCounters, grown_at) == 8 && offsetof(RingCounters, read) == 320 &&
              offsetof(RingCounters, reader_sleeps) == 384 &&
              offsetof(RingCounters, writer_sleeps) == 448);

RingCounters* counters_in(std::byte* at) {
  return std::launder(reinterpret_cast<RingCounters*>(at));
}

// What the caller has published must be visible before the flag is read.
WakeBy take_flag(std::atomic<std::uint32_t>& flag) {
  full_barrier();
  return answer_request(flag, flag.load(std::memory_order_relaxed));
}

constinit std::atomic<unsigned> generation{0};

}  // namespace

WakeBy answer_request(std::atomic<std::uint32_t>& flag, std::uint32_t seen) {
  if (seen == 0 || !flag.compare_exchange_strong(seen, 0, std::memory_order_seq_cst)) {
    return WakeBy::none;
  }
  return static_cast<WakeBy>(seen & ((1U << wake_by_bits) - 1));
}

// A ring in shared memory is still shared after fork(2), which a copy of the handle must notice.
unsigned fork_generation() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { ++generation; });
  return generation.load(std::memory_order_relaxed);
}

// The counters are not part of the registered ring: a peer that writes by RDMA cannot reach them.
// The size is never that of an earlier layout: an end that knows only such a one refuses the
// memory, and data go on as messages.
std::size_t shared_ring_bytes(std::uint32_t ring_bytes, std::uint32_t rows,
                              std::uint32_t receives) {
  return ring_offset + to_size(owned_bytes(ring_bytes, rows, receives));
}

// --- Writing -------------------------------------------------------------------------------------

std::optional<SharedRingWriter> SharedRingWriter::open(Descriptor file, Descriptor bell,
                                                       std::uint32_t ring_bytes,
                                                       std::size_t file_bytes) {
  auto memory = RingMemory::open(std::move(file), file_bytes);
  if (!memory) return std::nullopt;
  return SharedRingWriter(std::move(*memory), std::move(bell), ring_bytes);
}

void SharedRingWriter::start(std::uint64_t sent, std::uint32_t unread) {
  written_ = sent;
  read_ = sent - unread;
  counters().written.store(sent, std::memory_order_release);
}

RingCounters& SharedRingWriter::counters() const {
  return *counters_in(memory_.bytes().data());
}

// The reader looks for it when it finds bytes behind this position, so publish() orders both.
void SharedRingWriter::note_growth() {
  counters().grown_at[growths_++].store(written_, std::memory_order_relaxed);
}

void SharedRingWriter::publish(std::uint32_t bytes) {
  // Release: a reader that sees the counter sees the bytes before it.
  written_ += bytes;
  counters().written.store(written_, std::memory_order_release);
}

bool SharedRingWriter::room_waits() const {
  return counters().read.load(std::memory_order_acquire) != read_;
}

std::optional<std::uint32_t> SharedRingWriter::take_room() {
  // Acquire: the reader has copied the bytes before it has counted them, so they may be
  // overwritten.
  const std::uint64_t read = counters().read.load(std::memory_order_acquire);
  if (read < read_ || read > written_) return std::nullopt;
  return static_cast<std::uint32_t>(read - std::exchange(read_, read));
}

// A flag with another value is a mistake of the peer, which then gets a message without a request.
bool SharedRingWriter::reader_waits() {
  const WakeBy by = take_flag(counters().reader_sleeps);
  if (by == WakeBy::none) return false;
  if (by != WakeBy::bell || !bell_.valid()) return true;
  ring_bell();
  return false;
}

// A system call of its own, because the send(2) of this process may be the one that replaces it for
// TCP sockets. An error means that the peer has closed its end, or reads nothing from it: the end
// is readable then, which is all that a bell is for.
void SharedRingWriter::ring_bell() const {
  constexpr char byte = 0;
  (void)system_call(SYS_sendto, bell_.get(), &byte, sizeof byte, MSG_DONTWAIT | MSG_NOSIGNAL,
                    nullptr, 0);
}

// --- Reading -------------------------------------------------------------------------------------

void SharedRingReader::prepare(std::byte* counters) {
  new (counters) RingCounters;
}

SharedRingReader::SharedRingReader(std::byte* counters) : counters_(counters_in(counters)) {}

// A counter that went back gives a number that is too large as well.
std::uint64_t SharedRingReader::arrived() const {
  return counters_->written.load(std::memory_order_acquire) - received_;
}

// The part has its end behind the first byte at the earliest, so position 0 means nothing.
bool SharedRingReader::take_growth() {
  if (growths_ == RingCounters::most_growths || received_ == 0 ||
      counters_->grown_at[growths_].load(std::memory_order_relaxed) != received_) {
    return false;
  }
  ++growths_;
  return true;
}

void SharedRingReader::count_read(std::uint32_t bytes) {
  read_ += bytes;
  counters_->read.store(read_, std::memory_order_release);
}

bool SharedRingReader::writer_waits() {
  return take_flag(counters_->writer_sleeps) != WakeBy::none;
}

}  // namespace weft::stream::detail
