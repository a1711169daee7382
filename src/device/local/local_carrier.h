// The carrier of RC queue pairs whose two ends are processes of one user on one host.
//
// It begins as a StreamCarrier, and leaves TCP once both ends have agreed (local_agreement.h). From
// then on the initiator of an operation does the work itself, at once and without a thread of the
// target: it places Writes and fetches Reads by process_vm_writev(2) and process_vm_readv(2), after
// a look into the target's grant table; it matches Sends with the receives that the target has
// published, and puts their payload into the target's inbox or, where it is large, into the
// receive. A target with a shared receive queue publishes none, and matches Sends itself when it
// takes them out of its inbox. The target finds messages when it polls, and is woken if it has
// armed, or if it has not looked at such a Send for a while. A completion is added when the data
// are in place, so it means the same as over TCP with acknowledgements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "device/limits.h"
#include "device/local/local_agreement.h"
#include "device/local/local_channel.h"
#include "device/local/local_connection.h"
#include "device/local/local_requester.h"
#include "device/local/local_responder.h"
#include "device/queue_pair/gathering.h"
#include "device/queue_pair/stream_carrier.h"

namespace weft::device {

// Its data path knows nothing of traces: see ObservedLocalCarrier.
class LocalCarrier : public Carrier {
 public:
  // Why a connection must stay on TCP, as the end of "because ..."; empty: it need not. A capture
  // shows what TCP carries. `channel`: of the TCP connection `tcp`, if there is one.
  [[nodiscard]] static std::string_view obstacle(const QueuePairParts& parts,
                                                 const StreamParameters& parameters,
                                                 const TcpEnds& tcp, const LocalChannel& channel);
  // The same, as far as it is known before there is a connection. Without the queue pair's lock:
  // looks only at what its creation has settled.
  [[nodiscard]] static std::string_view lasting_obstacle(const QueuePairParts& parts);

  // `channel`: that of the TCP connection `socket`. `active`: this end has dialled it.
  LocalCarrier(QueuePairParts& parts, const StreamCarrier::Driver& driver, StreamSocket socket,
               const StreamParameters& parameters, bool paired, LocalChannel channel, bool active);
  // Of a connection that is made without TCP. An end that serves has taken its inbox.
  LocalCarrier(QueuePairParts& parts, const StreamCarrier::Driver& driver,
               const StreamParameters& parameters, bool paired, PairEnd pair);
  ~LocalCarrier() override;

  int start(QueuePairLock& lock) final;
  [[nodiscard]] bool takes_requests(const QueuePairLock& lock) const final;
  [[nodiscard]] bool takes_send_immediate(const QueuePairLock& lock) const final;
  int post(const SendRequest& request, QueuePairLock& lock) override;
  [[nodiscard]] bool post_promptly(const ibv_send_wr& request, bool signaled,
                                   const QueuePairLock& lock) override;
  void advance(QueuePairLock& lock) override;
  void posted(QueuePairLock& lock) override;
  void receives_posted(QueuePairLock& lock) final;
  void drive(Occasion occasion, QueuePairLock& lock) override;
  [[nodiscard]] bool poll_promptly(DirectPoll* poll, const QueuePairLock& lock) override;
  void note_steady_polling(const QueuePairLock& lock) final {
    if (stream_ && !agreeing()) stream_->note_steady_polling(lock);
  }
  void retry_attributes_changed(QueuePairLock& lock) final;
  void access_changed(QueuePairLock& lock) final;
  [[nodiscard]] bool requests_done(const QueuePairLock& lock) const final;
  void expect_event(bool solicited_only, QueuePairLock& lock) final;
  void begin_look(const QueuePairLock& lock) final;
  void end_look(QueuePairLock& lock) final;

  [[nodiscard]] bool ended(const QueuePairLock& lock) const final;
  [[nodiscard]] End end(const QueuePairLock& lock) const final;
  void disconnect(QueuePairLock& lock) override;
  [[nodiscard]] bool begin_disconnect(QueuePairLock& lock) override;
  [[nodiscard]] bool closing(const QueuePairLock& lock) const override {
    if (!stream_) return is_closing();
    return stream_->closing(lock) || (put_off() && !stream_->ended(lock));
  }
  void flush(QueuePairLock& lock) override;
  void stop(QueuePairLock& lock) final;

  void forget_memory(const std::byte* base, std::size_t length_bytes, QueuePairLock& lock) final;
  [[nodiscard]] Waits waits() const final;
  void add_counters(QueuePairCounters& counters) const final;
  void abandon_after_fork() final;

 protected:
  // --- For ObservedLocalCarrier

  [[nodiscard]] QueuePairParts& parts() const { return parts_; }
  // Null while the connection is on TCP.
  [[nodiscard]] const LocalRequester* requester() const {
    return link_ ? &link_->requester : nullptr;
  }

 private:
  // What exists once both ends have left TCP.
  struct Link {
    Link(QueuePairParts& parts, std::unique_ptr<LocalWire> wire, LocalConnection::Peer peer);

    LocalConnection connection;
    LocalRequester requester;
    LocalResponder responder;
  };

  void begin_agreement(QueuePairLock& lock);
  void agree(QueuePairLock& lock);
  void leave_tcp(QueuePairLock& lock);
  void note_leaving(bool staged);
  void start_in_pair(QueuePairLock& lock);
  void open_link();
  void look_for_peer();
  void stay_on_tcp(std::string_view why, QueuePairLock& lock);
  [[nodiscard]] bool agreeing() const { return agreement_ != nullptr; }
  void end_agreement(LocalAgreement::State state, std::string_view why, QueuePairLock& lock);
  [[nodiscard]] bool put_off_disconnect(QueuePairLock& lock);
  // A disconnection waits for the end of the agreement.
  [[nodiscard]] bool put_off() const { return agreeing() && closing_.end_ns != 0; }
  [[nodiscard]] std::uint64_t retry_timer_ns() const;
  [[nodiscard]] bool settled() const;
  void drive_agreement(Occasion occasion, QueuePairLock& lock);
  void execute();
  void watch_gathering();
  void look_at_gathered();
  void watch_taking();
  void look_at_taking();
  [[nodiscard]] bool is_closing() const {
    return closing_.end_ns != 0 && end_.reason == iwarp::EndReason::none;
  }
  void look_for_proofs();
  void take_in(Occasion occasion);
  void arm_again();
  void drain();
  void read_channel();
  void close_tcp();
  void look_for_end();
  void note_refused();
  void keep_time();
  void finish(iwarp::EndReason reason, std::optional<ibv_event_type> event, inbox::End reported);
  void flush_requests();
  [[nodiscard]] bool fails_later() const;

  QueuePairParts& parts_;
  StreamCarrier::Driver driver_;
  const bool paired_;
  const bool active_;
  const iwarp::ReceiverNotReady receiver_not_ready_;  // for Sends of the peer
  const bool immediates_;                             // the peer understands Sends with immediate
  std::unique_ptr<StreamCarrier> stream_;             // while this end uses TCP
  LocalChannel channel_;                              // while the ends negotiate
  SharedMemory inbox_;                                // the same
  std::unique_ptr<LocalAgreement> agreement_;
  std::unique_ptr<PairWire> pair_;  // until start(); null: it begins on TCP
  std::unique_ptr<Link> link_;
  std::unique_ptr<StreamSocket> socket_;  // until the peer has left TCP as well
  std::uint64_t token_ = 0;               // of the channel, with the engine
  std::uint64_t agreement_end_ns_ = 0;    // without an answer it stays on TCP
  std::uint64_t alarm_ns_ = UINT64_MAX;
  unsigned polls_ = 0;
  Gathering gathering_;             // of small Writes
  std::uint64_t watch_due_ns_ = 0;  // of the alarm for look_at_gathered(); 0: none
  // The alarm for look_at_taking().
  struct Nudge {
    std::uint64_t due_ns = 0;  // 0: none
    std::uint64_t pause_ns = limits::between_looks_at_sent_ns;
    bool stalled = false;  // at the last look
  };
  Nudge nudge_;
  // begin_disconnect() was called.
  struct Closing {
    std::uint64_t end_ns = 0;       // waits no longer; 0: was not called
    std::size_t posted_before = 0;  // of the requests that wait for the end of the agreement
  };
  Closing closing_;
  std::optional<std::uint8_t> retries_;  // as LocalRequester::set_retries()
  bool peer_gone_ = false;
  bool confirmed_ = true;  // the peer has the connection
  End end_;
};

}  // namespace weft::device
