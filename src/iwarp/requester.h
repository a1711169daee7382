// The send queue: from posted requests to FPDUs, and from responses to completions.
//
// A Send or Write completes only when the peer has placed it. The proof is the response to a read
// behind it (RFC 5040 §5.5: a responder processes messages in order): one of the application's own
// reads or atomics, or a zero-length RDMA Read that the requester adds where none follows. One such
// read covers everything before it, and at most one is outstanding.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "iwarp/control_outbox.h"
#include "iwarp/host.h"
#include "iwarp/segment.h"
#include "iwarp/transmitter.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"

namespace weft::iwarp {

class Requester {
 public:
  struct Options {
    bool acknowledge = true;
    std::uint16_t ord = 0;           // reads and atomics of the application at a time
    std::uint16_t wire_ord = 1;      // all reads and atomics, ours included
    bool send_immediate = false;     // the peer takes announcements
    bool unreliable = false;         // however the stream ends, requests were sent
    std::uint32_t window_bytes = 0;  // what the peer can hold (PeerFeatures); 0: no limit
  };

  enum class Posted : std::uint8_t { ok, queue_full, invalid, unsupported };

  Requester(const QueueLimits& limits, const Options& options, Host& host, Transmitter& out,
            ControlOutbox& control);

  [[nodiscard]] Posted post(const WorkRequest& request);
  // Whether a queue of such limits takes the request at all, full or not.
  [[nodiscard]] static bool acceptable(const QueueLimits& limits, const WorkRequest& request);

  // Adds FPDUs of the next request, to the end of its message or to the end of the room there is.
  // False where nothing could be added: queue empty, fence, ORD.
  bool build();
  // A message is partly built: nothing else may come between its segments (RFC 5041 §5.3).
  // The next request waits for room at the peer.
  [[nodiscard]] bool window_closed() const { return window_closed_; }
  [[nodiscard]] bool mid_message() const { return mid_message_; }
  // Adds the read that proves earlier requests, where one is wanted and possible.
  void acknowledge();
  [[nodiscard]] bool acknowledgement_due() const;
  // A call of build() or acknowledge() may add something now.
  [[nodiscard]] bool has_something_to_send() const {
    return next_ != tail_ || (proves() && acknowledgement_possible());
  }

  // Segments that answer our requests. An error code is what the answer deserves.
  [[nodiscard]] TerminateRaised check_read_response(const Segment& segment) const;
  [[nodiscard]] TerminateRaised read_targets(const Segment& segment, std::uint32_t offset,
                                             std::uint32_t length, std::vector<iovec>& out);
  void deliver_read_response(const Segment& segment);
  [[nodiscard]] bool store_original(std::uint64_t index, std::uint64_t value);
  [[nodiscard]] TerminateRaised atomic_response(const wire::AtomicResponse& response);

  // Raises completions that became due.
  void retire();
  // A request named memory it may not use: it has completed so, the stream must end.
  [[nodiscard]] bool failed_locally() const { return failed_locally_; }
  // Whether all that was posted has completed.
  [[nodiscard]] bool idle() const { return head_ == tail_; }

  // The peer says that it carried out so many of our messages: a proof that needs no read.
  void placed(std::uint64_t messages);
  // The peer has a receive for the message of queue 0 with this MSN.
  void granted(std::uint32_t msn);

  // The stream has ended; each request completes, the rest of them flushed. `executed`: so many of
  // our messages were carried out, and the next one is at fault; empty where the peer did not say.
  void end_by_terminate(const wire::Terminate& message, std::optional<std::uint64_t> executed);
  void end_by_loss(std::uint64_t acknowledged_position, std::optional<std::uint64_t> executed);
  void flush();
  // The memory of the first request that TCP has not taken whole cannot be read.
  void blame_unsent();

  [[nodiscard]] std::uint64_t acknowledgement_reads() const { return acknowledgement_reads_; }
  // Ready-to-receive messages count as well: a Send, with the next MSN on queue 0, and a Write.
  void count_rtr_send() {
    ++send_msn_;
    ++messages_;
  }
  void count_rtr_write() { ++messages_; }
  // A zero-length RDMA Read as ready-to-receive message (RFC 6581 §5.1).
  void build_probe();

 private:
  struct Entry {
    WorkRequest request;  // its span is not used: see slices_of()
    std::uint32_t length_bytes = 0;
    std::uint32_t slice_count = 0;
    std::uint32_t built_bytes = 0;
    std::uint32_t msn = 0;
    std::uint64_t end_position = 0;
    std::uint64_t last_message = 0;  // its number among all our messages, from 1
    std::uint64_t sent_cost = 0;     // up to its end: see window_open()
    bool built = false;
    bool answered = false;
    Status failure = Status::success;
  };

  // A read or atomic whose response is to come.
  struct Outstanding {
    bool ours = false;
    bool atomic = false;
    std::uint64_t index = 0;  // of the entry; ours: of the first entry not covered
    std::uint32_t msn = 0;
    std::uint32_t sink_stag = 0;
    std::uint64_t sink_offset = 0;
    std::uint32_t size_bytes = 0;
    std::uint32_t received_bytes = 0;
    std::uint64_t sent_cost = 0;  // of all Sends before it: see window_open()
  };

  [[nodiscard]] std::size_t place_of(std::uint64_t index) const {
    return static_cast<std::size_t>(index % entries_.size());
  }
  [[nodiscard]] Entry& entry(std::uint64_t index) { return entries_[place_of(index)]; }
  [[nodiscard]] const Entry& entry(std::uint64_t index) const { return entries_[place_of(index)]; }
  [[nodiscard]] std::span<LocalSlice> slices_of(std::uint64_t index);
  void store_slices(const WorkRequest& request);
  [[nodiscard]] bool acknowledgement_possible() const;
  // Proofs are asked for: for completions, or to know what the peer has taken out of its hold.
  [[nodiscard]] bool proves() const { return options_.acknowledge || options_.window_bytes != 0; }
  [[nodiscard]] bool may_start(const Entry& entry) const;
  [[nodiscard]] bool needs_grant(const Entry& entry) const;
  [[nodiscard]] bool window_open(const Entry& entry);
  [[nodiscard]] bool grant_given();
  void charge(const Entry& entry);
  bool start(Entry& entry);
  [[nodiscard]] bool gather(std::uint64_t index, std::uint32_t bytes);
  bool build_send(Entry& entry);
  bool build_write(Entry& entry);
  void build_immediate(Entry& entry, std::uint32_t tag);
  void build_read(Entry& entry);
  bool build_atomic(Entry& entry);
  [[nodiscard]] wire::AtomicRequest atomic_operands(const WorkRequest& work) const;
  void add_untagged(wire::RdmapOpcode opcode, const Entry& entry, std::uint32_t bytes, bool last);
  void add_request(wire::RdmapOpcode opcode, Bytes payload, Outstanding outstanding);
  [[nodiscard]] bool carry_out(Entry& entry);
  void finish_build(Entry& entry);
  void fail(Entry& entry, Status status);
  void answered(const Outstanding& outstanding);
  [[nodiscard]] bool done(std::uint64_t index) const;
  void complete(std::uint64_t index, Status status);
  void end_unreliably();
  [[nodiscard]] std::uint64_t find_guilty(const wire::Terminate& message,
                                          std::optional<std::uint64_t> executed) const;
  [[nodiscard]] bool blamed(const Entry& entry, const wire::Terminate& message) const;

  QueueLimits limits_;
  Options options_;
  Host& host_;
  Transmitter& out_;
  ControlOutbox& control_;

  // head_ <= next_ <= tail_: oldest not completed, next to build, next free. They only grow.
  std::vector<Entry> entries_;
  std::vector<LocalSlice> slices_;
  std::vector<std::byte> inline_data_;
  std::uint64_t head_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t told_ = 0;      // entries before this one: completions tell of them
  bool window_closed_ = false;  // at the last look
  bool mid_message_ = false;
  bool failed_ = false;          // some entry carries a failure: build no more
  bool failed_locally_ = false;  // and it has completed

  std::deque<Outstanding> outstanding_;
  std::uint32_t users_outstanding_ = 0;
  bool ours_outstanding_ = false;
  std::uint64_t proven_ = 0;        // entries before this one are known to be placed
  std::uint64_t proof_wanted_ = 0;  // entries before this one wait for proof
  std::uint64_t unproven_bytes_ = 0;
  std::uint64_t acknowledgement_reads_ = 0;

  std::uint32_t send_msn_ = 1;
  std::uint32_t request_msn_ = 1;
  std::uint64_t messages_ = 0;  // built whole

  // Towards a peer with a hold of limited size: see window_open().
  enum class Grant : std::uint8_t { none, asked, given };
  Grant grant_ = Grant::none;  // for the request at next_
  std::uint64_t sent_cost_ = 0;
  std::uint64_t proven_cost_ = 0;

  std::vector<iovec> gathered_;
};

}  // namespace weft::iwarp
