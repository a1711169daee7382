// Runs one RDMAP stream after its handshake: bytes and work go in; bytes, placements and
// completions come out. It has no socket, no thread and no clock. A *driver* (the queue pair, or a
// test) owns it, moves the bytes and makes all calls under one lock.
//
// Receiving: plan_receive() gives the memory for the next bytes of the stream; received() processes
// what was read into it. Sending: plan_send() builds FPDUs from posted work, answers and control
// words, and gives the bytes to send next; sent() reports how many of them TCP has taken.
//
// Each call may change what the driver has to do next. It looks at the following afterwards:
//
//   call                     plan_send()  deadline_ns()  ended()
//   post()                        x
//   received()                    x             x           x        (see clock_needed())
//   receives_posted()             x             x           x
//   on_time()                     x             x           x
//   plan_send()                                             x
//   sent()                        x                         x
//   set_rnr_timer()                             x
//   announce_rnr_retries()        x
//   receive_memory_lost()         x                         x
//   send_memory_lost(), close()   x                      always
//   close_when_proven()           x                       x
//   peer_closed()                                        always
//
// - plan_send(): call it, send the bytes and call sent(), until it returns nothing or the socket is
//   full. Also call it when a full socket has room again.
// - deadline_ns(): call on_time() at that time, unless it is never_ns. It belongs to a message that
//   waits for a receive, or to the ready-to-receive message of an initiator (see rtr_repeat.h),
//   whose clock starts with the first call of on_time(); nothing else depends on time.
// - ended(): stop receiving, and continue with plan_send() until drained(). Then shut the socket
//   down.
//
// plan_receive() is called before each read, and received() with its result right after it. Memory
// may be unregistered at any other time, after a call of forget(). Most calls may report
// completions to the Host, and the end of the stream, once, by Host::on_end().
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
#include "iwarp/rtr_repeat.h"
#include "iwarp/transmitter.h"

namespace weft::iwarp {

// The ready-to-receive message of a peer-to-peer connection (RFC 6581 §5.1): the first FPDU of the
// initiator, after which the responder may send.
enum class RtrKind : std::uint8_t { none, send, write, read };

class Connection final : private SegmentSink {
 public:
  struct Options {
    bool initiator = true;
    bool crc = true;
    bool strict_crc = false;
    bool send_markers = false;
    bool acknowledge = true;      // Sends and Writes complete when placed: see proofs.h
    std::uint16_t ird = 1;        // reads that the peer may have under way here
    std::uint16_t wire_ord = 1;   // reads that may be under way to the peer, probes included
    std::uint16_t ord = 0;        // those of them that the application may use
    RtrKind rtr = RtrKind::none;  // sent first by the initiator; expected by the responder
    std::size_t mulpdu_bytes = 1442;
    QueueLimits limits{};
    ReceiverNotReady receiver_not_ready{};
    // An unreliable connection (IBV_QPT_UC): messages that cannot be placed are dropped, and their
    // requests succeed all the same.
    bool unreliable = false;
    // The stream is a loop: this connection receives what it sends, and is both of its sides.
    bool to_itself = false;
    PeerFeatures peer{};
    // The STag to which a Weft peer writes control words; 0: the peer does not know of any. It
    // cannot be guessed, and no region of the application has it.
    std::uint32_t control_stag = 0;
  };

  static constexpr std::uint64_t never_ns = UINT64_MAX;

  // `host` must outlive this object. An initiator builds its ready-to-receive message at once.
  Connection(const Options& options, Host& host);

  [[nodiscard]] bool takes_send_immediate() const { return options_.peer.send_immediate; }
  // Copies the request into the send queue and sends nothing. After the end of the stream the
  // request is flushed at once.
  [[nodiscard]] Requester::Posted post(const WorkRequest& request);

  // Appends the memory for the next bytes of the stream. Appends nothing once the stream has ended.
  void plan_receive(std::vector<iovec>& out);
  // `bytes` bytes were read into what the last plan_receive() appended, in its order.
  void received(std::size_t bytes);
  // No more bytes are expected soon, unlike while a program polls: gives back the buffer for them.
  // The last plan_receive() is no longer valid.
  void rest() { deframer_.rest(); }
  // Call on_time() now, after received(): a wait for a receive has begun or ended, or one goes on.
  // Rarely true, so that the driver need not read its clock for each message.
  [[nodiscard]] bool clock_needed() const {
    return receiver_.starving() != waiting_message_ || waiting_message_ != 0 ||
           rtr_repeat_.running();
  }

  // The bytes to send next; empty where there are none. Valid until the next call of another member
  // that is not const.
  [[nodiscard]] std::span<const iovec> plan_send();
  // TCP has taken the first `bytes` bytes of the last plan_send().
  void sent(std::size_t bytes);

  // Receives were posted: places the messages that wait for one. Not needed unless starving().
  void receives_posted(std::uint64_t now_ns);
  // A message waits for a receive, here or at the peer, which asked for a grant.
  [[nodiscard]] bool starving() const { return receiver_.starving() != 0; }
  // Ends the stream where a message has waited for too long; repeats the ready-to-receive message.
  // `now_ns`: of any clock that does not go back, the same for all members that take a time.
  void on_time(std::uint64_t now_ns);
  // When a waiting message will have waited for too long, or the ready-to-receive message is to be
  // repeated; never_ns where none waits, or where it may wait for ever.
  [[nodiscard]] std::uint64_t deadline_ns() const;
  // The interval of ReceiverNotReady, for a message that waits already as well.
  void set_rnr_timer(std::uint64_t timer_ns) { options_.receiver_not_ready.timer_ns = timer_ns; }
  // Messages that found no receive, and how long they waited in all, up to now for the one that
  // still does.
  [[nodiscard]] std::uint64_t rnr_waits() const { return rnr_waits_; }
  [[nodiscard]] std::uint64_t rnr_wait_ns(std::uint64_t now_ns) const {
    return rnr_wait_ns_ + (waiting_message_ != 0 ? now_ns - waiting_since_ns_ : 0);
  }
  // The next request waits until the peer can hold it (see peer_window.h), as of the last
  // plan_send().
  [[nodiscard]] bool awaits_credit() const { return requester_.window_closed(); }
  // A message of the peer waits for a receive.
  [[nodiscard]] bool message_waits() const { return waiting_message_ != 0; }
  // Announces to a Weft peer how often it should retry our Sends (ibv_modify_qp(3), rnr_retry).
  void announce_rnr_retries(std::uint8_t retries);

  // The peer closed the stream without a Terminate. `acknowledged_position`: how many bytes its TCP
  // has acknowledged, counted from the first byte of our first FPDU.
  void peer_closed(std::uint64_t acknowledged_position);
  // The kernel could not access memory that plan_receive() or plan_send() named (EFAULT): it was
  // unmapped although it is still registered. The request that uses it fails, which ends the
  // stream.
  void receive_memory_lost();
  void send_memory_lost();
  // Ends the stream with this Terminate, though the peer has made no error.
  void terminate_with(wire::TerminateCode code) { raise({.code = code}); }
  // Ends the stream from this side and flushes every outstanding request. FPDUs that are built, and
  // answers that are due, are still sent.
  void close();
  // Ends the stream from this side, as close() does, but first waits until the peer has carried out
  // the requests that were sent: until then it works as before for them, begins no other one, and
  // discards what the peer asks for. Ends at once where nothing was sent. The driver calls close()
  // when it has waited for long enough.
  void close_when_proven();

  [[nodiscard]] bool ended() const { return end_ != EndReason::none; }
  [[nodiscard]] EndReason end_reason() const { return end_; }
  // The stream has ended and TCP has taken its last byte: the socket may be shut down.
  [[nodiscard]] bool drained() const { return ended() && out_.empty(); }
  // An initiator may send at once, a responder after the peer's first FPDU (RFC 5044 §7.1).
  [[nodiscard]] bool may_send() const { return may_send_; }
  // Lets a responder send before that FPDU, against the rule, where the user knows that the peer
  // accepts it.
  void send_first() { may_send_ = true; }
  [[nodiscard]] bool idle() const { return requester_.idle() && responder_.idle(); }
  // Every posted request has completed.
  [[nodiscard]] bool requests_done() const { return requester_.idle(); }
  // How many requests TCP has taken whole, since the beginning; before the end of the stream.
  [[nodiscard]] std::uint64_t requests_sent() { return requester_.requests_sent(); }
  // Part of an FPDU has arrived: the end of the stream would cut it.
  [[nodiscard]] bool mid_fpdu() const { return deframer_.mid_fpdu(); }

  // Nothing is to be sent except responses to empty reads. These only prove to the peer what was
  // placed (see proofs.h), so the driver may delay them and send them with the next request.
  [[nodiscard]] bool only_proofs_due() const {
    const bool due =
        responder_.idle() ? owes_proof() : responder_.only_proofs_due(receiver_.placed());
    return due && out_.empty() && !control_.due() && !requester_.has_something_to_send();
  }
  // Nothing is to be sent except a probe, and such responses. It may wait for the next request,
  // too, and then proves that one as well.
  [[nodiscard]] bool only_probe_due() const {
    return requester_.only_probe_due() && out_.empty() && !control_.due() &&
           (responder_.idle() || responder_.only_proofs_due(receiver_.placed()));
  }

  // The memory [base, base + bytes) is being unregistered: copies what is still to be sent from it.
  // The last plan_send() is no longer valid.
  void forget(const std::byte* base, std::size_t bytes) { out_.forget(base, bytes); }
  // The largest ULPDU of FPDUs that are built from now on (RFC 5044 §3).
  void set_mulpdu_bytes(std::size_t bytes) { out_.set_mulpdu_bytes(bytes); }

  // The Terminate that ended the stream, whichever side sent it.
  [[nodiscard]] const wire::Terminate& terminate() const { return terminate_; }
  [[nodiscard]] std::uint64_t acknowledgement_reads() const {
    return requester_.acknowledgement_reads();
  }
  // Bytes of the peer in responses to probes, which should have none.
  [[nodiscard]] std::uint64_t discarded_answer_bytes() const {
    return requester_.discarded_answer_bytes();
  }
  // Sends of the peer that arrived and were not received.
  [[nodiscard]] const Receiver::Unreceived& unreceived() const { return receiver_.unreceived(); }

 private:
  bool take_send(std::uint32_t msn, Bytes payload) override;
  bool take_write(std::uint32_t stag, std::uint64_t offset, Bytes payload) override;
  Course begin(const Segment& segment) override;
  bool targets(const Segment& segment, std::uint32_t offset, std::uint32_t length,
               std::vector<iovec>& out) override;
  bool lost(const Segment& segment) override;
  bool deliver(const Segment& segment) override;
  bool control(const Segment& segment, Bytes payload) override;
  void fault(wire::TerminateCode code, const Segment* segment) override;

  // A fault of a peer's request that is not reported yet, because earlier requests still wait for a
  // receive, or the answers to them for room.
  struct DeferredFault {
    wire::Terminate message;
    std::uint64_t executed = 0;  // messages of the peer before the one at fault
    bool gave_up = false;        // no receive came in time: held messages are not placed any more
  };

  // What the peer learns of its messages without a read.
  struct GivenProofs {
    bool all = false;          // the peer has asked for that: `prove_all`
    std::uint64_t placed = 0;  // value of the last control word `placed`
  };

  [[nodiscard]] TerminateRaised check(const Segment& segment);
  [[nodiscard]] TerminateRaised check_untagged(const Segment& segment);
  [[nodiscard]] TerminateRaised take_request(const Segment& segment, Bytes payload);
  void take_terminate(Bytes payload);
  // Control words are recognised here: their STag is in no table of regions.
  [[nodiscard]] bool is_control_word(const Segment& segment) const {
    return is_control_stag(segment.tagged_header.stag) &&
           segment.opcode == wire::RdmapOpcode::write;
  }
  [[nodiscard]] bool is_control_stag(std::uint32_t stag) const {
    return stag == options_.control_stag && options_.control_stag != 0;
  }
  [[nodiscard]] static TerminateRaised check_control_word(const Segment& segment);
  [[nodiscard]] bool take_control_word(const Segment& segment, Bytes payload);
  [[nodiscard]] bool is_request(const Segment& segment) const;
  // After a fault of the peer's requests, and while this side closes the stream, later ones are not
  // carried out, only taken off the stream.
  [[nodiscard]] bool is_discarded(const Segment& segment) const {
    return discards_requests() && is_request(segment);
  }
  [[nodiscard]] bool discards_requests() const {
    return deferred_ || terminate_looping_ || requester_.finishing();
  }
  [[nodiscard]] bool is_dropped(const Segment& segment) const {
    return options_.unreliable && is_request(segment) && receiver_.drops(segment);
  }
  [[nodiscard]] bool refuse(wire::TerminateCode code, const Segment& segment);
  [[nodiscard]] Responder::Place place_of_request() const {
    return {.number = receiver_.messages() + 1, .held_before = receiver_.held()};
  }
  void give_up_waiting(wire::TerminateCode code);
  void settle_held();
  void defer(const DeferredFault& fault);
  void raise_deferred();
  void report_placed();
  void take_prove_all(bool wanted);
  void discard_into(std::vector<iovec>& out, std::uint32_t length);
  void note_first_fpdu();
  [[nodiscard]] bool swallow_rtr_send(const Segment& segment);
  void send_rtr();
  void send_empty_write();
  [[nodiscard]] std::uint64_t rnr_deadline_ns() const;
  [[nodiscard]] bool may_build() const {
    return may_send_ && !ended() && !terminate_looping_ && out_.has_room();
  }
  [[nodiscard]] bool between_messages() const {
    return !requester_.mid_message() && !responder_.mid_message();
  }
  // False: fill_once() has nothing to look at, as after most messages.
  [[nodiscard]] bool something_waits() const {
    return !requester_.all_built() || !responder_.idle() || control_.due() || deferred_ ||
           receiver_.holds() || rtr_repeat_.due() || owes_proof();
  }
  // The peer wants proofs without asking, and something new was carried out.
  [[nodiscard]] bool owes_proof() const {
    return given_.all && receiver_.executed() > given_.placed;
  }
  void fill();
  bool fill_once();
  [[nodiscard]] wire::Terminate refused_request(wire::TerminateCode code) const;
  void raise(const wire::Terminate& message, std::optional<std::uint64_t> executed = std::nullopt);
  void report_executed(std::uint64_t messages);
  [[nodiscard]] TerminateRaised answer_pending();
  void end_if_over();
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
  bool peer_ready_ = false;  // the peer's first FPDU has arrived
  RtrRepeat rtr_repeat_;
  bool responder_turn_ = true;              // the next message should be an answer
  std::uint32_t expected_request_msn_ = 1;  // of queue 1
  std::uint32_t expected_answer_msn_ = 1;   // of queue 3
  EndReason end_ = EndReason::none;
  bool terminate_looping_ = false;  // to_itself only: our Terminate was sent and is not back yet
  wire::Terminate terminate_;
  std::optional<std::uint64_t> executed_;  // our messages that the peer reported as carried out

  GivenProofs given_;
  std::uint64_t waiting_message_ = 0;   // Receiver::starving() as of the last on_time()
  std::uint64_t waiting_since_ns_ = 0;  // of that message
  std::uint64_t rnr_waits_ = 0;
  std::uint64_t rnr_wait_ns_ = 0;  // of waits that are over
  std::optional<DeferredFault> deferred_;
  std::vector<std::byte> discarded_;  // sink for the payload of discarded messages
};

}  // namespace weft::iwarp
