// One RDMAP stream after its handshake: bytes in, work in; bytes out, placements and completions
// out. No socket, no thread, no clock: whoever owns it moves the bytes, under one lock.
//
//   plan_receive() says where the next bytes of the stream go; received() takes note of them.
//   plan_send() says what goes out next; sent() takes note of what went.
//
// Time matters only while something waits for a receive: after received() and receives_posted(),
// needs_time() asks for on_time(), which comes again at deadline_ns().
//
// A read of several requests' worth of bytes may raise completions and answers; flush() turns work
// and answers into FPDUs, and is called by plan_send().
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "iwarp/control_outbox.h"
#include "iwarp/deframer.h"
#include "iwarp/host.h"
#include "iwarp/receiver.h"
#include "iwarp/receiver_not_ready.h"
#include "iwarp/requester.h"
#include "iwarp/responder.h"
#include "iwarp/transmitter.h"

namespace weft::iwarp {

// The ready-to-receive message of a peer-to-peer connection (RFC 6581 §5.1).
enum class RtrKind : std::uint8_t { none, send, write, read };

class Connection final : private SegmentSink {
 public:
  struct Options {
    bool initiator = true;
    bool crc = true;
    bool strict_crc = false;
    bool send_markers = false;
    bool acknowledge = true;      // completions mean "placed"
    std::uint16_t ird = 1;        // on the wire: the application's and the device's
    std::uint16_t wire_ord = 1;   // on the wire
    std::uint16_t ord = 0;        // the application's share of it
    RtrKind rtr = RtrKind::none;  // what the initiator sends first; the responder may expect
    std::size_t mulpdu_bytes = 1442;
    QueueLimits limits{};
    ReceiverNotReady receiver_not_ready{};
    // An unreliable connection: what cannot be placed is dropped, and no request learns of it.
    bool unreliable = false;
    // What is sent comes back: both sides of the stream are this one.
    bool to_itself = false;
    PeerFeatures peer{};
    // Where the peer, being a Weft, writes control words; 0: nowhere. Unguessable, and no region of
    // the application has it.
    std::uint32_t control_stag = 0;
  };

  static constexpr std::uint64_t never_ns = UINT64_MAX;

  Connection(const Options& options, Host& host);

  [[nodiscard]] bool takes_send_immediate() const { return options_.peer.send_immediate; }
  [[nodiscard]] Requester::Posted post(const WorkRequest& request);

  // Appends nothing once the stream has ended.
  void plan_receive(std::vector<iovec>& out);
  void received(std::size_t bytes);

  // What goes out next; empty where there is nothing. Valid until the next call of another member.
  [[nodiscard]] std::span<const iovec> plan_send();
  void sent(std::size_t bytes);

  // Receives were posted: what waited for them is placed.
  void receives_posted();
  [[nodiscard]] bool starving() const { return receiver_.starving() != 0; }
  // Something began to wait, or waits no more: on_time() is due.
  [[nodiscard]] bool needs_time() const { return receiver_.starving() != waiting_message_; }
  void on_time(std::uint64_t now_ns);
  // When the wait is over; never_ns where nothing waits, or for ever.
  [[nodiscard]] std::uint64_t deadline_ns() const;
  void set_rnr_timer(std::uint64_t timer_ns) { options_.receiver_not_ready.timer_ns = timer_ns; }
  // Messages that found no receive, and how long they waited, with the one that still does.
  [[nodiscard]] std::uint64_t rnr_waits() const { return rnr_waits_; }
  [[nodiscard]] std::uint64_t rnr_wait_ns(std::uint64_t now_ns) const {
    return rnr_wait_ns_ + (waiting_message_ != 0 ? now_ns - waiting_since_ns_ : 0);
  }
  // The next request waits for room in what the peer can hold.
  [[nodiscard]] bool awaits_credit() const { return requester_.window_closed(); }
  // Tells the peer how often our own Sends are to be tried.
  void announce_rnr_retries(std::uint8_t retries);

  // The peer's stream ended without a Terminate. `acknowledged_position`: how many bytes of ours
  // its TCP has acknowledged, counted from the first byte of the first FPDU.
  void peer_closed(std::uint64_t acknowledged_position);
  // The kernel could not reach memory that a receive, a read or a request names: it was unmapped
  // under its registration. Ends the stream.
  void memory_lost();
  // Ends the stream from this side: every request still under way is flushed. FPDUs already built,
  // and the answers due, are still sent.
  void close();

  [[nodiscard]] bool ended() const { return end_ != EndReason::none; }
  [[nodiscard]] EndReason end_reason() const { return end_; }
  // All that was to be sent has gone, and nothing will follow: the socket may be shut down.
  [[nodiscard]] bool drained() const { return ended() && out_.empty(); }
  // Both directions run: an initiator at once, a responder after the first FPDU (RFC 5044 §7.1).
  [[nodiscard]] bool may_send() const { return may_send_; }
  [[nodiscard]] bool idle() const { return requester_.idle() && responder_.idle(); }
  // Every request that was posted has completed.
  [[nodiscard]] bool requests_done() const { return requester_.idle(); }
  [[nodiscard]] bool mid_fpdu() const { return deframer_.mid_fpdu(); }

  // Nothing waits to be sent but answers to empty reads: proofs that the peer would like, which
  // carry no data.
  [[nodiscard]] bool only_proofs_due() const {
    return out_.empty() && responder_.only_proofs_due(receiver_.placed()) && !control_.due() &&
           !requester_.has_something_to_send();
  }

  // Memory goes away: whatever is still to be sent from it is copied.
  void forget(const std::byte* base, std::size_t bytes) { out_.forget(base, bytes); }
  void set_mulpdu_bytes(std::size_t bytes) { out_.set_mulpdu_bytes(bytes); }

  // The Terminate that ended the stream, whichever side sent it.
  [[nodiscard]] const wire::Terminate& terminate() const { return terminate_; }
  [[nodiscard]] std::uint64_t acknowledgement_reads() const {
    return requester_.acknowledgement_reads();
  }

 private:
  Course begin(const Segment& segment) override;
  bool targets(const Segment& segment, std::uint32_t offset, std::uint32_t length,
               std::vector<iovec>& out) override;
  bool deliver(const Segment& segment) override;
  bool control(const Segment& segment, Bytes payload) override;
  void fault(wire::TerminateCode code, const Segment* segment) override;

  // A fault of a request that is raised in its turn: earlier requests may wait for receives, and
  // answers to them for room.
  struct DeferredFault {
    wire::Terminate message;
    std::uint64_t executed = 0;
    bool gave_up = false;  // waiting for a receive: nothing else is placed
  };

  [[nodiscard]] TerminateRaised check(const Segment& segment);
  [[nodiscard]] TerminateRaised check_untagged(const Segment& segment);
  [[nodiscard]] TerminateRaised take_request(const Segment& segment, Bytes payload);
  void take_terminate(Bytes payload);
  // A control word is ours to recognise, before and without any table of regions.
  [[nodiscard]] bool is_control_word(const Segment& segment) const {
    return segment.tagged_header.stag == options_.control_stag && options_.control_stag != 0 &&
           segment.opcode == wire::RdmapOpcode::write;
  }
  [[nodiscard]] static TerminateRaised check_control_word(const Segment& segment);
  [[nodiscard]] bool take_control_word(const Segment& segment, Bytes payload);
  [[nodiscard]] bool is_request(const Segment& segment) const;
  [[nodiscard]] bool is_discarded(const Segment& segment) const {
    return (deferred_ || last_word_said_) && is_request(segment);
  }
  [[nodiscard]] bool is_dropped(const Segment& segment) const {
    return options_.unreliable && is_request(segment) && receiver_.drops(segment);
  }
  [[nodiscard]] bool refuse(wire::TerminateCode code, const Segment& segment);
  [[nodiscard]] Responder::Place place_of_request() const {
    return {.number = receiver_.messages() + 1, .held_before = receiver_.held()};
  }
  void give_up_waiting(wire::TerminateCode code);
  void defer(const DeferredFault& fault);
  void raise_deferred();
  void report_placed();
  void discard_into(std::vector<iovec>& out, std::uint32_t length);
  void note_first_fpdu();
  [[nodiscard]] bool swallow_rtr_send(const Segment& segment);
  void send_rtr();
  [[nodiscard]] bool may_build() const {
    return may_send_ && !ended() && !last_word_said_ && out_.has_room();
  }
  void fill();
  bool fill_once();
  [[nodiscard]] wire::Terminate refused_request(wire::TerminateCode code) const;
  void raise(const wire::Terminate& message, std::optional<std::uint64_t> executed = std::nullopt);
  void say_executed(std::uint64_t messages);
  [[nodiscard]] TerminateRaised answer_pending();
  void end(EndReason reason);

  Options options_;
  Host& host_;
  Transmitter out_;
  ControlOutbox control_;
  Requester requester_;
  Responder responder_;
  Receiver receiver_;
  Deframer deframer_;

  bool may_send_;
  bool peer_ready_ = false;
  bool responder_turn_ = true;
  std::uint32_t expected_request_msn_ = 1;
  std::uint32_t expected_answer_msn_ = 1;
  EndReason end_ = EndReason::none;
  bool last_word_said_ = false;  // to itself, and not heard yet
  wire::Terminate terminate_;
  std::optional<std::uint64_t> executed_;  // as the peer said

  std::uint64_t reported_placed_ = 0;
  std::uint64_t waiting_message_ = 0;  // whose wait is timed; see Receiver::starving()
  std::uint64_t waiting_since_ns_ = 0;
  std::uint64_t rnr_waits_ = 0;
  std::uint64_t rnr_wait_ns_ = 0;
  std::optional<DeferredFault> deferred_;
  std::vector<std::byte> discarded_;  // where the payload of what follows a fault goes
};

}  // namespace weft::iwarp
