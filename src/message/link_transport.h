// LinkTransport: the rdma_cm id, the completion queue and the queue pair of one connection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/receive_place.h"
#include "message/device.h"
#include "weft/verbs.hpp"

namespace weft::message::detail {

// What a work request was posted for. It is part of the wr_id, with the number of a slot.
enum class Work : std::uint64_t { send = 1, receive = 2, read = 3, probe = 4 };
[[nodiscard]] inline std::uint64_t work_id(Work work, std::uint32_t slot) {
  return static_cast<std::uint64_t>(work) << 32 | slot;
}
[[nodiscard]] inline Work work_of(std::uint64_t id) {
  return static_cast<Work>(id >> 32);
}
[[nodiscard]] inline std::uint32_t slot_of(std::uint64_t id) {
  return static_cast<std::uint32_t>(id);
}

// Not thread-safe: belongs to the loop's thread.
class LinkTransport {
 public:
  // --- The id
  void set_id(verbs::Id id) { id_.emplace(std::move(id)); }
  [[nodiscard]] const verbs::Id* id() const { return id_ ? &*id_ : nullptr; }
  // Disconnects; no effect if the peer has done so before.
  void disconnect() const noexcept;

  // --- The queue pair
  struct Sizes {
    std::uint32_t sends = 0;
    std::uint32_t receives = 0;
    std::uint32_t reads = 0;
    std::uint32_t slices = 0;  // of one send; the device may have less
  };
  // Completion events carry `context`. Throws Error.
  void create(std::shared_ptr<Device> device, const Sizes& sizes, void* context);
  [[nodiscard]] const std::shared_ptr<Device>& device() const { return device_; }
  // Slices of one Send.
  [[nodiscard]] std::size_t max_slices() const { return max_slices_; }
  [[nodiscard]] bool has_queue() const { return queue_.has_value(); }
  // Only after create().
  [[nodiscard]] verbs::QueuePair& queue_pair() { return *queue_pair_; }
  [[nodiscard]] verbs::CompletionQueue& queue() { return *queue_; }

  // Takes completions off the queue. A message may be placed in `place`.
  [[nodiscard]] std::span<verbs::Completion> poll(std::span<verbs::Completion> into,
                                                  ReceivePlace& place) const;
  // Arms the queue. Returns false if it was armed before. Otherwise the caller polls again, because
  // completions that came before raise no event.
  [[nodiscard]] bool arm();
  void on_completion_event() { armed_ = false; }

  // Posts a write of zero bytes, which the peer's device confirms without its program. Returns 0 or
  // an errno.
  [[nodiscard]] int post_probe();
  // What the peer has read and written in this side's memory; 0 where the device does not count it.
  [[nodiscard]] std::uint64_t accessed_bytes() const;

  // Destroys all but the device, whose memory may still be in use.
  void reset();

 private:
  // In the order in which they are created; destroyed the other way round.
  std::shared_ptr<Device> device_;
  std::optional<verbs::Id> id_;
  std::optional<verbs::CompletionQueue> queue_;
  std::optional<verbs::QueuePair> queue_pair_;
  std::size_t max_slices_ = 0;
  bool armed_ = false;
};

}  // namespace weft::message::detail
