// Extended completion queues: completions with timestamps and addressing information.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "weft/export.hpp"
#include "weft/verbs/completion.hpp"

namespace weft::verbs {

// Options of ibv_create_cq_ex(3).
struct ExtendedCompletionQueueOptions {
  const CompletionChannel* channel = nullptr;  // used during the call only
  int vector = 0;
  void* user_context = nullptr;  // returned by CompletionChannel::wait()
  // The additional fields: IBV_WC_EX_WITH_… combined with |. The length, the immediate data and
  // both queue pair numbers are always available.
  std::uint64_t fields = 0;
  // Promises that only one thread uses the queue and its queue pairs, so that the device takes no
  // lock.
  bool single_threaded = false;
};

class ExtendedCompletionQueue;

// An iteration over a completion queue, from ibv_start_poll(3) to ibv_end_poll(3). It has exclusive
// use of the queue while it exists, and cannot be copied or moved.
//
//   auto completions = queue.iterate();
//   while (completions.next()) use(completions.id(), completions.timestamp());
//
// next() takes a completion off the queue; the accessors describe it until the next call of next().
// If it is not ok(), only id(), status(), vendor_error() and queue_pair_number() are valid.
class CompletionIteration {
 public:
  CompletionIteration(const CompletionIteration&) = delete;
  CompletionIteration& operator=(const CompletionIteration&) = delete;
  ~CompletionIteration() {
    if (polling_) ibv_end_poll(raw_);
    busy_ = false;
  }

  // Takes the next completion; false if the queue is empty or polling failed, see failure().
  [[nodiscard]] bool next() {
    ibv_poll_cq_attr attributes{};
    const int failed = polling_ ? ibv_next_poll(raw_) : ibv_start_poll(raw_, &attributes);
    if (failed == 0) polling_ = true;
    if (failed != 0 && failed != ENOENT) failure_ = failed;
    return failed == 0;
  }
  // The errno of a failed poll, which no healthy device reports; 0 if the queue was empty.
  [[nodiscard]] int failure() const { return failure_; }

  // The id that the request was posted with.
  [[nodiscard]] std::uint64_t id() const { return raw_->wr_id; }
  // Whether the request was successful.
  [[nodiscard]] bool ok() const { return raw_->status == IBV_WC_SUCCESS; }
  // The status of verbs.
  [[nodiscard]] ibv_wc_status status() const { return raw_->status; }
  // The status in words.
  [[nodiscard]] std::string_view status_name() const { return verbs::status_name(raw_->status); }
  // As Completion::vendor_error().
  [[nodiscard]] std::uint32_t vendor_error() const { return ibv_wc_read_vendor_err(raw_); }
  // What the request was.
  [[nodiscard]] ibv_wc_opcode opcode() const { return ibv_wc_read_opcode(raw_); }
  // Whether a receive has completed: by a Send, or by a Write with immediate.
  [[nodiscard]] bool is_receive() const { return (opcode() & IBV_WC_RECV) != 0; }
  // The bytes received or read; valid for receives and reads.
  [[nodiscard]] std::uint32_t size_bytes() const { return ibv_wc_read_byte_len(raw_); }
  // The immediate data in host byte order; nothing if the message carried none.
  [[nodiscard]] std::optional<std::uint32_t> immediate() const {
    if (!ok() || !flagged(IBV_WC_WITH_IMM)) return std::nullopt;
    return ntohl(ibv_wc_read_imm_data(raw_));
  }
  // The local rkey that the peer's send with invalidate has invalidated.
  [[nodiscard]] std::optional<std::uint32_t> invalidated_rkey() const {
    if (!ok() || !flagged(IBV_WC_WITH_INV)) return std::nullopt;
    return ibv_wc_read_invalidated_rkey(raw_);
  }
  // The queue pair of this side, which matters where several share the queue.
  [[nodiscard]] std::uint32_t queue_pair_number() const { return ibv_wc_read_qp_num(raw_); }
  // For datagrams: the sender's queue pair, and whether the first 40 bytes of the buffer hold a
  // GRH.
  [[nodiscard]] std::uint32_t source_queue_pair() const { return ibv_wc_read_src_qp(raw_); }
  // Whether the datagram came with a GRH.
  [[nodiscard]] bool has_grh() const { return flagged(IBV_WC_GRH); }

  // The fields below are empty unless the queue was created with them. LIDs are 0 on Ethernet.
  [[nodiscard]] std::optional<std::uint32_t> source_lid() const {
    return read(IBV_WC_EX_WITH_SLID, ibv_wc_read_slid);
  }
  // The service level of a datagram.
  [[nodiscard]] std::optional<std::uint8_t> service_level() const {
    return read(IBV_WC_EX_WITH_SL, ibv_wc_read_sl);
  }
  // The low bits of the LID that a datagram was sent to.
  [[nodiscard]] std::optional<std::uint8_t> destination_path_bits() const {
    return read(IBV_WC_EX_WITH_DLID_PATH_BITS, ibv_wc_read_dlid_path_bits);
  }
  // The time of completion by the device's clock, see Context::query_clock().
  [[nodiscard]] std::optional<std::uint64_t> timestamp() const {
    return read(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, ibv_wc_read_completion_ts);
  }
  // The time of completion in nanoseconds since 1970.
  [[nodiscard]] std::optional<std::uint64_t> wallclock_ns() const {
    return read(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, ibv_wc_read_completion_wallclock_ns);
  }

 private:
  friend class ExtendedCompletionQueue;
  CompletionIteration(ibv_cq_ex* raw, std::uint64_t fields, bool& busy)
      : raw_(raw), fields_(fields), busy_(busy) {
    if (busy) throw_busy();
    busy = true;
  }
  [[noreturn]] WEFT_API static void throw_busy();
  [[nodiscard]] bool flagged(unsigned flag) const {
    return (ibv_wc_read_wc_flags(raw_) & flag) != 0;
  }
  // Checks the field first: devices have no function for a field that was not requested.
  template <typename Value>
  [[nodiscard]] std::optional<Value> read(std::uint64_t field, Value (*reader)(ibv_cq_ex*)) const {
    if ((fields_ & field) == 0) return std::nullopt;
    return reader(raw_);
  }

  ibv_cq_ex* raw_;
  std::uint64_t fields_;
  bool& busy_;
  bool polling_ = false;
  int failure_ = 0;
};

// A completion queue that can also be read by iterate(), ibv_create_cq_ex(3). Thread-safe except
// for iterate().
class ExtendedCompletionQueue : public CompletionQueue {
 public:
  ExtendedCompletionQueue(ExtendedCompletionQueue&&) noexcept = default;
  ExtendedCompletionQueue& operator=(ExtendedCompletionQueue&&) noexcept = default;

  // Starts an iteration. For one thread at a time, while no other thread polls; the queue must not
  // be moved during it. Throws std::logic_error if another iteration exists.
  [[nodiscard]] CompletionIteration iterate() { return {raw_extended(), fields_, busy_}; }

  // The object of verbs. Belongs to this one.
  [[nodiscard]] ibv_cq_ex* raw_extended() const { return reinterpret_cast<ibv_cq_ex*>(raw()); }

 private:
  friend class Context;
  ExtendedCompletionQueue(CompletionQueue&& queue, std::uint64_t fields)
      : CompletionQueue(std::move(queue)), fields_(fields) {}

  std::uint64_t fields_;
  bool busy_ = false;
};

}  // namespace weft::verbs
