// The carrier of RC and UC queue pairs: iWARP over a TCP connection whose handshake is done.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/connect/stream_socket.h"
#include "device/engine.h"
#include "device/queue_pair/carrier.h"
#include "device/queue_pair/deferral.h"
#include "device/queue_pair/gathering.h"
#include "device/queue_pair/queue_pair_parts.h"
#include "device/queue_pair/silent_initiator.h"
#include "iwarp/connection.h"

namespace weft::device {

// What the handshake has agreed on, as seen by this side. The carrier fills in what depends on the
// queue pair and its socket: limits, MULPDU, strict CRCs and the receiver-not-ready timer.
using StreamParameters = iwarp::Connection::Options;

// How long requests have waited for room in what the peer can hold.
class CreditWait {
 public:
  // Reads the clock only where a wait begins or ends.
  void note(bool waits, QueuePairCounters& counters);
  void end(QueuePairCounters& counters) { note(false, counters); }
  // Of the wait that still lasts.
  [[nodiscard]] std::uint64_t waited_ns(std::uint64_t now_ns) const {
    return waits_ ? now_ns - since_ns_ : 0;
  }

 private:
  bool waits_ = false;
  std::uint64_t since_ns_ = 0;
};

// Its data path knows nothing of faults, links and traces: see ObservedStreamCarrier.
class StreamCarrier : public Carrier, private iwarp::Host {
 public:
  // The device's progress, on behalf of the queue pair.
  struct Driver {
    Engine& engine;
    std::weak_ptr<Pollable> queue_pair;
  };
  // `paired`: by the queue pair itself, so that losing the peer ends no more than the connection;
  // otherwise a connection manager has connected it.
  StreamCarrier(QueuePairParts& parts, Driver driver, StreamSocket socket,
                const StreamParameters& parameters, bool paired);

  // Registers with the engine, and sends and receives what there is. 0, or ENOMEM where the kernel
  // refuses; the stream has ended then.
  int start(QueuePairLock& lock) final;

  // For LocalCarrier, which leaves the stream before the first request. While requests are held,
  // takes_requests() is false.
  void hold_requests(bool hold);
  // The peer's first FPDU has arrived, or this end is the initiator.
  [[nodiscard]] bool confirmed() const { return confirmed_; }
  // Ends this carrier without a word to the peer; the connection goes on elsewhere.
  [[nodiscard]] StreamSocket release_socket(QueuePairLock& lock);

  [[nodiscard]] bool takes_requests(const QueuePairLock& lock) const final;
  [[nodiscard]] bool takes_send_immediate(const QueuePairLock& /*lock*/) const final {
    return connection_.takes_send_immediate();
  }
  int post(const SendRequest& request, QueuePairLock& lock) final;
  void advance(QueuePairLock& lock) override;
  void posted(QueuePairLock& lock) override;
  void receives_posted(QueuePairLock& lock) final;
  void drive(Occasion occasion, QueuePairLock& lock) override;
  void note_steady_polling(const QueuePairLock& lock) final;
  void retry_attributes_changed(QueuePairLock& lock) final;
  [[nodiscard]] bool requests_done(const QueuePairLock& /*lock*/) const final {
    return connection_.requests_done();
  }

  [[nodiscard]] bool ended(const QueuePairLock& /*lock*/) const final {
    return connection_.ended();
  }
  [[nodiscard]] End end(const QueuePairLock& lock) const final;
  void disconnect(QueuePairLock& lock) final;
  [[nodiscard]] bool begin_disconnect(QueuePairLock& lock) final;
  [[nodiscard]] bool closing(const QueuePairLock& /*lock*/) const final {
    return closing_end_ns_ != iwarp::Connection::never_ns && !connection_.ended();
  }
  void flush(QueuePairLock& lock) final;
  void stop(QueuePairLock& lock) final;

  void forget_memory(const std::byte* base, std::size_t length_bytes, QueuePairLock& lock) final;
  [[nodiscard]] Waits waits() const final;
  void add_counters(QueuePairCounters& counters) const final;
  void abandon_after_fork() final { socket_.disown(); }

 protected:
  // --- For ObservedStreamCarrier

  bool next_receive(iwarp::ReceiveRequest& request) override;
  void note_peer_access(const iwarp::PeerAccess& access) override;
  // Whether a rule of faults has silenced the connection for this time.
  [[nodiscard]] virtual bool silenced(std::uint64_t /*timeout_ns*/) const { return false; }
  // The carrier stops. Adds to `rest` what is still to be sent; true: the socket is done with.
  [[nodiscard]] virtual bool end_shaping(std::vector<std::byte>& /*rest*/) { return false; }
  std::size_t receive_available();  // returns how many bytes have come in
  // `keep_end`: a call without it follows soon, so TCP may keep what does not fill a segment.
  void send_available(bool keep_end = false);
  void lose_stream(int error);
  // Whether the engine watches the socket.
  void listen(bool wanted);

  [[nodiscard]] QueuePairParts& parts() const { return parts_; }
  [[nodiscard]] const Driver& driver() const { return driver_; }
  [[nodiscard]] StreamSocket& socket() { return socket_; }
  [[nodiscard]] const StreamSocket& socket() const { return socket_; }
  [[nodiscard]] iwarp::Connection& connection() { return connection_; }

 private:
  // Of TCP.
  struct Segments {
    std::size_t sent_since_look = 0;  // bytes, at their size
    bool whole = false;               // TCP sends no others: see keep_segments_whole()
  };

  // What the protocol core asks for, from inside of its calls.
  iwarp::Memory remote_memory(std::uint32_t stag, std::uint64_t offset, std::uint64_t length_bytes,
                              iwarp::RemoteRight right) override;
  iwarp::Memory local_memory(const iwarp::LocalSlice& slice, bool for_writing) override;
  bool name_receive_queue(std::uint32_t number) override {
    return parts_.name_receive_queue(number);
  }
  bool invalidate(std::uint32_t stag) override { return parts_.memory.invalidate(stag); }
  iwarp::Status carry_out_local() override { return parts_.memory.carry_out_next(); }
  void complete_send(const iwarp::SendCompletion& completion) override;
  void complete_receive(const iwarp::ReceiveCompletion& completion) override;
  void on_peer_ready() override;
  void on_end(iwarp::EndReason reason) override;

  [[nodiscard]] iwarp::Connection::Options complete(StreamParameters parameters) const;
  [[nodiscard]] bool fails_later() const;
  void on_receive_error(int error);
  void follow_segment_size(std::size_t sent_bytes);
  void keep_segments_whole(bool whole);
  void want_write(bool wanted);
  void note_room(bool waits);
  void count_terminate(const wire::TerminateCode& code);
  void set_alarm();
  void watch_initiator();
  void look_for_initiator();
  void on_time(std::uint64_t now_ns);
  void watch_peer();
  void next_look_for_peer(std::uint64_t at_ns);
  void look_for_peer();
  void watch_idle_peer();
  [[nodiscard]] bool defer_proofs(bool waiting, const QueuePairLock& lock);
  [[nodiscard]] bool may_defer_probe(const QueuePairLock& lock);
  [[nodiscard]] bool may_gather(const QueuePairLock& lock);
  void send_posted(bool keep_end);
  void note_late_gathering();

  QueuePairParts& parts_;
  Driver driver_;
  StreamSocket socket_;
  const bool paired_;
  const bool send_markers_;
  const bool holds_;  // Sends that find no receive
  iwarp::Connection connection_;
  bool confirmed_;               // the peer has the stream as well
  std::uint64_t base_position_;  // bytes written to the socket before the first FPDU
  std::uint64_t token_ = 0;      // with the engine; 0: not registered
  bool held_ = false;            // see hold_requests()
  bool writing_ = false;         // EPOLLOUT is asked for
  Deferral deferral_;            // see defer_proofs() and posted()
  Gathering gathering_;
  std::uint64_t alarm_ns_ = iwarp::Connection::never_ns;  // drive() comes then
  // The next look at whether the peer's host is still there, while requests wait for it.
  std::uint64_t peer_look_ns_ = iwarp::Connection::never_ns;
  std::uint64_t waiting_since_ns_ = 0;  // 0: at the last look, or at its start, no request waited
  // begin_disconnect() was called: until then the peer may prove what was sent.
  std::uint64_t closing_end_ns_ = iwarp::Connection::never_ns;
  bool heard_ = false;  // bytes of the peer have come in since the last such look
  bool keeps_alive_ = false;
  Segments segments_;
  CreditWait credit_wait_;
  RefusedAccess not_found_;  // the last access of the peer whose memory was refused
  SilentInitiator initiator_;
  std::vector<iovec> planned_;
};

}  // namespace weft::device
