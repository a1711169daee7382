// The send queue of a stream: turns posted requests into FPDUs, and responses into completions.
//
// A Send or Write completes only when the peer has placed it, which the response to a later read
// proves: see proofs.h. Towards a Weft peer that holds messages without a receive, no more is sent
// than it can hold: see peer_window.h.
//
// Requests are built and complete in the order of posting. A message may take several calls of
// build(), one for each time that there is room; nothing else may be sent between its segments (RFC
// 5041 §5.3), which the Connection ensures by asking mid_message().
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "iwarp/control_outbox.h"
#include "iwarp/host.h"
#include "iwarp/peer_window.h"
#include "iwarp/proofs.h"
#include "iwarp/segment.h"
#include "iwarp/send_queue.h"
#include "iwarp/transmitter.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"

namespace weft::iwarp {

class Requester {
 public:
  struct Options {
    bool acknowledge = true;         // Sends and Writes complete when they are proven
    std::uint16_t ord = 0;           // reads and atomics of the application under way at a time
    std::uint16_t wire_ord = 1;      // the same with the probe: what the peer allows
    bool send_immediate = false;     // the peer understands announcements (see Receiver)
    bool names_queues = false;       // requests belong to shared receive queues of the peer
    bool unreliable = false;         // a request succeeds once it is sent, however the stream ends
    std::uint32_t window_bytes = 0;  // what the peer can hold (PeerFeatures); 0: no limit
  };

  enum class Posted : std::uint8_t { ok, queue_full, invalid, unsupported };

  // `host`, `out` and `control` must outlive this object.
  Requester(const QueueLimits& limits, const Options& options, Host& host, Transmitter& out,
            ControlOutbox& control);

  // Copies the request with its slices and inline data. Sends nothing.
  [[nodiscard]] Posted post(const WorkRequest& request);
  // Whether a queue of such limits accepts the request, whether it is full or not.
  [[nodiscard]] static bool acceptable(const QueueLimits& limits, const WorkRequest& request);

  // Adds FPDUs of the next request, to the end of its message or until there is no more room. False
  // where nothing could be added: the queue is empty, or the request waits for a fence, for ORD or
  // for the peer's window.
  bool build();
  // A message is partly built: nothing else may come between its segments (RFC 5041 §5.3).
  [[nodiscard]] bool mid_message() const { return mid_message_; }
  // The last build() stopped because the peer could not hold the next request.
  [[nodiscard]] bool window_closed() const { return window_.closed(); }
  // Adds a probe, where a proof is wanted and a probe may be sent.
  void acknowledge();
  // So much is unproven that acknowledge() should be called before the next build().
  [[nodiscard]] bool acknowledgement_due() const { return proofs_.overdue(); }
  // No request is left for build().
  [[nodiscard]] bool all_built() const { return queue_.all_built(); }
  // A call of build() or acknowledge() may add something now.
  [[nodiscard]] bool has_something_to_send() const {
    return !queue_.all_built() || acknowledgement_possible();
  }

  // Only acknowledge() may add something, and the stream goes on.
  [[nodiscard]] bool only_probe_due() const {
    return queue_.all_built() && acknowledgement_possible() && !finishing_;
  }

  // Responses to our reads. The first three are called in this order for each segment; an error
  // code ends the stream.
  [[nodiscard]] TerminateRaised check_read_response(const Segment& segment) const;
  // The segment is part of the response to a probe: it has no place, whatever payload it has. Then
  // read_targets() is not called.
  [[nodiscard]] bool discards(const Segment& segment) const;
  [[nodiscard]] TerminateRaised read_targets(const Segment& segment, std::uint32_t offset,
                                             std::uint32_t length, std::vector<iovec>& out);
  // The sink of the response that is arriving cannot be accessed.
  [[nodiscard]] wire::TerminateCode read_lost();
  void deliver_read_response(const Segment& segment);
  [[nodiscard]] TerminateRaised atomic_response(const wire::AtomicResponse& response);

  // Reports the completions that became due, to Host::complete_send().
  void retire();
  // A request failed on this side and has completed with its error: the stream must end.
  [[nodiscard]] bool failed_locally() const { return failed_locally_; }
  // How many requests TCP has taken whole, since the beginning. For traces of requests; until the
  // end of the stream.
  [[nodiscard]] std::uint64_t requests_sent();
  // Every posted request has completed.
  [[nodiscard]] bool idle() const { return queue_.idle(); }

  // No request begins from now on, and everything that was sent wants its proof. A message that has
  // begun is sent to its end.
  void finish();
  [[nodiscard]] bool finishing() const { return finishing_; }
  // After finish(): every request that was sent has completed; the others wait to be flushed.
  [[nodiscard]] bool finished() const {
    return finishing_ && !mid_message_ && queue_.head() == queue_.next();
  }

  // Control word `placed`: the peer has carried out our first `messages` messages. A proof that
  // needs no read.
  void placed(std::uint64_t messages);
  // Control word `proves_all`: the peer proves what is sent from now on without being asked.
  void proves_all() { proofs_.agreed(); }
  // Control word `granted`: the peer has a receive for the message of queue 0 with this MSN.
  void granted(std::uint32_t msn) { window_.granted(msn); }

  // The stream has ended: every request completes, and those that no rule finds successful or at
  // fault are flushed. `executed`: how many of our messages the peer carried out before the one at
  // fault; empty where the peer did not report it.
  void end_by_terminate(const wire::Terminate& message, std::optional<std::uint64_t> executed);
  // `acknowledged_position`: how many bytes of FPDUs the peer's TCP has acknowledged.
  void end_by_loss(std::uint64_t acknowledged_position, std::optional<std::uint64_t> executed);
  void flush();
  // The kernel could not read the memory of the first request that TCP has not taken whole: that
  // request will fail when the queue is flushed.
  void blame_unsent();

  // Probes sent by acknowledge() so far.
  [[nodiscard]] std::uint64_t acknowledgement_reads() const { return acknowledgement_reads_; }
  [[nodiscard]] std::uint64_t discarded_answer_bytes() const { return discarded_answer_bytes_; }
  // The Connection has sent a ready-to-receive message itself (RFC 6581 §5.1). It counts as one of
  // our messages, a Send with an MSN of queue 0 as well.
  void count_rtr_send() {
    ++send_msn_;
    ++messages_;
  }
  void count_rtr_write() { ++messages_; }
  // Adds a zero-length RDMA Read, as a probe or as the ready-to-receive message.
  void build_probe();

 private:
  using Entry = SendQueue::Entry;

  // A read or atomic that waits for its response.
  struct Outstanding {
    bool probe = false;
    bool atomic = false;
    std::uint64_t index = 0;  // of its entry; a probe: of the first entry that it does not prove
    std::uint32_t msn = 0;
    std::uint32_t sink_stag = 0;  // as the request named it: the response must name it, too
    std::uint64_t sink_offset = 0;
    std::uint32_t size_bytes = 0;
    std::uint32_t received_bytes = 0;
    std::uint64_t sent_cost = 0;  // PeerWindow::sent_cost() when it was sent: what it proves
  };

  [[nodiscard]] bool acknowledgement_possible() const;
  // Proofs are asked for: for completions, or to know what the peer has taken out of its hold.
  [[nodiscard]] bool proves() const { return options_.acknowledge || window_.limited(); }
  [[nodiscard]] bool may_start(const Entry& entry) const;
  [[nodiscard]] bool admitted(const Entry& entry);
  bool start(Entry& entry);
  [[nodiscard]] bool gather(std::uint64_t index, std::uint32_t bytes);
  bool build_operation(Entry& entry);
  bool build_send(Entry& entry);
  bool build_write(Entry& entry);
  void build_immediate(Entry& entry, std::uint32_t tag);
  void add_immediate(const wire::ImmediateData& data, std::uint32_t msn, bool solicited);
  [[nodiscard]] bool names_next_queue(const Entry& entry);
  void build_read(Entry& entry);
  bool build_atomic(Entry& entry);
  [[nodiscard]] std::optional<wire::AtomicRequest> atomic_operands(
      const StoredRequest& request) const;
  void add_request(wire::RdmapOpcode opcode, Bytes payload, Outstanding outstanding);
  [[nodiscard]] bool carry_out(Entry& entry);
  void finish_build(Entry& entry);
  void fail(Entry& entry, Status status);
  [[nodiscard]] bool store_original(std::uint64_t index, std::uint64_t value);
  void answered(const Outstanding& outstanding);
  [[nodiscard]] bool done(std::uint64_t index) const;
  void complete(std::uint64_t index, Status status);
  void end_unreliably();
  [[nodiscard]] std::uint64_t find_guilty(const wire::Terminate& message,
                                          std::optional<std::uint64_t> executed) const;

  Options options_;
  QueueLimits limits_;
  Host& host_;
  Transmitter& out_;
  ControlOutbox& control_;

  SendQueue queue_;
  std::uint64_t reported_ = 0;  // requests before this index are covered by a reported completion
  std::uint64_t sent_ = 0;      // see requests_sent()
  bool mid_message_ = false;
  std::uint32_t named_queue_ = 0;  // the peer's receive queue that was named last
  bool queue_named_ = false;       // ... for the request at next(), which has not started
  bool failed_ = false;            // some entry carries a failure: nothing more is built
  bool failed_locally_ = false;    // ... and has completed, or is a message cut in two
  bool finishing_ = false;         // see finish()

  std::deque<Outstanding> outstanding_;  // in the order of sending, which responses keep
  std::uint32_t users_outstanding_ = 0;  // those that are not probes
  Proofs proofs_;
  PeerWindow window_;
  std::uint64_t acknowledgement_reads_ = 0;
  std::uint64_t discarded_answer_bytes_ = 0;

  std::uint32_t send_msn_ = 1;     // next message of queue 0
  std::uint32_t request_msn_ = 1;  // next message of queue 1
  std::uint64_t messages_ = 0;     // built whole, of every kind

  std::vector<iovec> gathered_;  // scratch: payload of the segment that is being built
  bool whole_gathered_ = false;  // it has the payload of the whole request that has just started
};

}  // namespace weft::iwarp
