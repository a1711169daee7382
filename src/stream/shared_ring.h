// A ring in memory that two processes of one host map, and the counters before it: one process
// copies bytes into the ring and publishes how many, the other copies them out and publishes how
// many it has read. Neither needs the other's processor, a message or a system call, unless the
// other side sleeps and has asked for a wake-up.
//
// A side that is about to sleep sets its flag, and then looks at the counters once more. The other
// side publishes its counter, and then looks at the flag. Both orders are sequentially consistent,
// so at least one of them notices the other.
//
// A sleeper is woken by a message, or by its bell: a descriptor that it has given to the peer,
// which writes a byte to it. A program that waits for the other end of that descriptor is then
// woken by the kernel itself, without another thread of this process in between.
//
// The peer is another process, which may be broken or hostile. Each side keeps its own counter in
// its own memory, reads only the counter of the peer, and checks it against what is possible.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/descriptor.h"
#include "base/full_barrier.h"
#include "stream/ring_memory.h"

namespace weft::stream::detail {

// In shared memory; zero at first. Positions count the bytes of this direction since the beginning
// of the stream, including those that messages have carried.
struct RingCounters {
  // A part doubles at most this often until it is a ring of the largest size.
  static constexpr std::size_t most_growths = 32;

  // By the writer.
  alignas(64) std::atomic<std::uint64_t> written{0};
  // The positions at which the writer went on behind the part, instead of at its beginning.
  std::array<std::atomic<std::uint64_t>, most_growths> grown_at{};
  // By the reader, which owns the memory.
  alignas(64) std::atomic<std::uint64_t> read{0};
  // Set by the side that will sleep, cleared by the side that wakes it: WakeRequest::value_of().
  alignas(64) std::atomic<std::uint32_t> reader_sleeps{0};
  alignas(64) std::atomic<std::uint32_t> writer_sleeps{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// The memory begins with the counters, and the ring follows at once: an idle stream uses few bytes
// of its ring, so both lie on one page.
inline constexpr std::size_t ring_offset = sizeof(RingCounters);
// `receives`: all that the owner posts, those for control messages included.
[[nodiscard]] std::size_t shared_ring_bytes(std::uint32_t ring_bytes, std::uint32_t rows,
                                            std::uint32_t receives);

// How often this process descends by fork(2) from the one that called it first. A child has the
// mappings of its parent, and must not change them: they belong to the parent's streams.
[[nodiscard]] unsigned fork_generation();

// How a side is woken. Values of the flags in RingCounters.
enum class WakeBy : std::uint32_t { none = 0, message = 1, bell = 2 };
inline constexpr unsigned wake_by_bits = 2;

// One side's request to be woken. At most one wake-up is under way, so one posted receive is
// enough. Not thread-safe.
class WakeRequest {
 public:
  [[nodiscard]] WakeBy made() const { return made_; }
  // The caller must look at the peer's counter afterwards.
  void make(std::atomic<std::uint32_t>& flag, WakeBy by) {
    if (made_ != WakeBy::none) return;
    made_ = by;
    flag.store(value_of(by, ++number_), std::memory_order_seq_cst);
    full_barrier();
  }
  // Each request has another value, so that a peer which has seen an earlier one and was then
  // stopped does not answer this one: it has nothing new for it.
  [[nodiscard]] static constexpr std::uint32_t value_of(WakeBy by, std::uint32_t number) {
    return static_cast<std::uint32_t>(by) | number << wake_by_bits;
  }
  // A message has arrived that wakes. False if none was requested.
  [[nodiscard]] bool answered() { return std::exchange(made_, WakeBy::none) == WakeBy::message; }
  // Whether the peer has answered a request for the bell. It may have had nothing new: a peer that
  // was stopped after it published bytes answers the request that it finds when it goes on.
  [[nodiscard]] bool is_rung(const std::atomic<std::uint32_t>& flag) const {
    return made_ == WakeBy::bell && flag.load(std::memory_order_acquire) == 0;
  }
  // Ends a request for the bell. Returns whether the peer has rung it, or is about to.
  [[nodiscard]] bool take_back_bell(std::atomic<std::uint32_t>& flag) {
    if (made_ != WakeBy::bell) return false;
    made_ = WakeBy::none;
    return flag.exchange(0, std::memory_order_seq_cst) == 0;
  }

 private:
  WakeBy made_ = WakeBy::none;
  std::uint32_t number_ = 0;
};

// For the side that wakes. `seen`: the flag as it was read, after what is new was published. Clears
// it and returns how to wake; none if there is no request, or if that one is over: a request that
// was made since then is not answered, because its maker has seen all that was published.
[[nodiscard]] WakeBy answer_request(std::atomic<std::uint32_t>& flag, std::uint32_t seen);

// The side that copies bytes into the peer's ring. Not thread-safe.
class SharedRingWriter {
 public:
  // `file`: the memory of the peer's ring, of `file_bytes` by its greeting. `bell`: the peer's, if
  // it has one. Nothing if the memory is not as it must be, or cannot be mapped.
  [[nodiscard]] static std::optional<SharedRingWriter> open(Descriptor file, Descriptor bell,
                                                            std::uint32_t ring_bytes,
                                                            std::size_t file_bytes);
  // Starts writing. Call it once, before the message that makes the peer look. `sent` and `unread`:
  // bytes that messages have carried, and of these the ones that the peer has not returned.
  void start(std::uint64_t sent, std::uint32_t unread);

  [[nodiscard]] std::span<std::byte> ring() const {
    return memory_.bytes().subspan(ring_offset, ring_bytes_);
  }
  // The next byte goes behind the part that was used until now.
  void note_growth();
  void publish(std::uint32_t bytes);
  // Bytes that the peer has read since the last call. Nothing: its counter is impossible.
  [[nodiscard]] std::optional<std::uint32_t> take_room();
  // Gives the pages behind the first `kept` bytes of the ring back to the kernel. Only while the
  // ring is empty, so that the reader reads none of them.
  void give_back_pages(std::uint32_t kept) const {
    memory_.give_back(ring_offset + kept, ring_offset + ring_bytes_, true);
  }
  // Whether take_room() would return anything but 0.
  [[nodiscard]] bool room_waits() const;
  // Wakes the reader if it waits for its bell. Returns whether it waits for a message instead,
  // which the caller must send.
  [[nodiscard]] bool reader_waits();
  void request_wake() { wake_.make(counters().writer_sleeps, WakeBy::message); }
  [[nodiscard]] WakeRequest& wake() { return wake_; }
  [[nodiscard]] const WakeRequest& wake() const { return wake_; }

 private:
  SharedRingWriter(RingMemory memory, Descriptor bell, std::uint32_t ring_bytes)
      : memory_(std::move(memory)), bell_(std::move(bell)), ring_bytes_(ring_bytes) {}
  [[nodiscard]] RingCounters& counters() const;
  void ring_bell() const;

  RingMemory memory_;
  Descriptor bell_;
  std::uint32_t ring_bytes_;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;  // by the peer, as seen last
  std::size_t growths_ = 0;
  WakeRequest wake_;
};

// The side that owns the ring and reads from it. Not thread-safe.
class SharedRingReader {
 public:
  // Makes the counters. Before the memory is offered to the peer, which may use them at once.
  static void prepare(std::byte* counters);
  // `counters` must be prepared, must outlive this, and must not be used by another one.
  explicit SharedRingReader(std::byte* counters);

  // Bytes that were received, by messages or as arrived() has reported them.
  void count_received(std::uint32_t bytes) { received_ += bytes; }
  // Bytes that the peer has published and count_received() has not counted. A peer that is not
  // hostile publishes at most the free bytes of the ring, which the caller checks.
  [[nodiscard]] std::uint64_t arrived() const;
  // Whether the peer continued behind the part at this position. Reports each growth once.
  [[nodiscard]] bool take_growth();
  // The program has read bytes: the peer may overwrite them.
  void count_read(std::uint32_t bytes);
  // Whether the writer waits for room. If so, the caller must wake it.
  [[nodiscard]] bool writer_waits();
  void request_wake(WakeBy by) { wake_.make(counters_->reader_sleeps, by); }
  // Whether the bell was requested, and the peer has rung it, or is about to.
  [[nodiscard]] bool bell_is_rung() const { return wake_.is_rung(counters_->reader_sleeps); }
  // Ends a request for the bell. Returns what bell_is_rung() would have.
  [[nodiscard]] bool take_back_bell() { return wake_.take_back_bell(counters_->reader_sleeps); }
  [[nodiscard]] WakeRequest& wake() { return wake_; }
  [[nodiscard]] const WakeRequest& wake() const { return wake_; }

 private:
  RingCounters* counters_;
  std::uint64_t received_ = 0;
  std::uint64_t read_ = 0;
  std::size_t growths_ = 0;
  WakeRequest wake_;
};

}  // namespace weft::stream::detail
