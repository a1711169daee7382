// MPA connection set-up (RFC 5044 §7.1, RFC 6581), from either side. Reads exactly the bytes of the
// peer's frame and none of the stream that follows it.
//
// The driver reads wanted_bytes() bytes and calls input(), sends output() and calls output_done(),
// and calls on_time() at deadline_ns(). After each call it looks at failed() and at what the side
// has reached: accepted(), rejected(), requested().
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "iwarp/connection.h"
#include "wire/mpa.h"
#include "wire/terminate.h"

namespace weft::iwarp {

// Ready-to-receive messages (RFC 6581 §5.1) that a side offers (initiator) or accepts (responder).
struct RtrKinds {
  bool send = false;
  bool write = true;
  bool read = true;
};

struct HandshakeOptions {
  std::uint8_t revision = 2;
  bool crc = true;
  bool markers = false;  // ask the peer for markers; the device never does
  bool peer_to_peer = true;
  bool mark = false;   // let a Weft peer recognize this side: see wire::MpaMark
  bool words = false;  // with a mark: offer control words, see wire::MpaFrame::words
  // With a mark, an initiator: this is the sending end of an extended connection, and the peer must
  // be a receiving one.
  bool extended = false;
  RtrKinds rtr{};
  std::uint16_t ird = 1;      // as sent to the peer
  std::uint16_t ord = 1;      // as sent to the peer
  std::uint16_t max_ird = 1;  // a responder raises its IRD up to this for the initiator's ORD
  std::uint64_t deadline_ns = UINT64_MAX;  // on the clock of on_time()
};

// What both sides have agreed on, as seen by this side.
struct Negotiated {
  std::uint8_t revision = 1;
  bool crc = true;
  bool send_markers = false;
  bool enhanced = false;
  bool ird_ord_negotiated = false;  // otherwise ird and ord are only what this side offered
  std::uint16_t ird = 1;
  std::uint16_t ord = 1;
  RtrKind rtr = RtrKind::none;
  bool weft = false;      // both sides have sent their marks
  bool words = false;     // and both have offered control words
  bool extended = false;  // and the connection is an extended one

  bool operator==(const Negotiated&) const = default;
};

enum class HandshakeFailure : std::uint8_t {
  none,
  closed,            // the peer closed before its frame was complete
  retry_revision_1,  // the peer closed on a revision 2 request: connect again with revision 1
  not_mpa,           // the bytes are no MPA frame
  bad_frame,         // an MPA frame that breaks the rules
  insufficient_ird,  // RFC 6581 §9.2: the peer's ORD exceeds our IRD
  no_matching_rtr,   // RFC 6581 §7: no ready-to-receive message that both sides know
  not_extended,  // the peer has accepted, but not as the receiving end of an extended connection
  timed_out,
};

[[nodiscard]] const char* describe(HandshakeFailure failure);

// The part that both sides share: receives one frame and sends one frame.
class Handshake {
 public:
  // How many bytes may be read next; 0 where no more are expected.
  [[nodiscard]] std::size_t wanted_bytes() const;
  // `bytes`: at most wanted_bytes().
  void input(Bytes bytes);
  // The peer has closed its side of the stream.
  void input_closed();

  // The bytes to send. After a failure this may be a Terminate that reports it (RFC 6581 §8).
  [[nodiscard]] Bytes output() const { return Bytes(output_).subspan(output_done_); }
  void output_done(std::size_t bytes) { output_done_ += bytes; }

  // Fails the handshake where the deadline has passed and the peer's frame is not complete.
  void on_time(std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t deadline_ns() const { return options_.deadline_ns; }

  [[nodiscard]] HandshakeFailure failure() const { return failure_; }
  [[nodiscard]] bool failed() const { return failure_ != HandshakeFailure::none; }
  // The private data of the peer's application; valid as long as this object.
  [[nodiscard]] Bytes peer_private_data() const;
  // Meaningful once accepted().
  [[nodiscard]] const Negotiated& negotiated() const { return negotiated_; }
  // How much private data of the application fits into a frame of this revision.
  [[nodiscard]] static std::size_t max_private_data_bytes(std::uint8_t revision);

 protected:
  explicit Handshake(const HandshakeOptions& options, wire::MpaKind expected);
  ~Handshake() = default;
  // The peer's frame is complete and well formed.
  virtual void on_frame() = 0;
  void fail(HandshakeFailure failure) { failure_ = failure; }
  void put(const wire::MpaFrame& frame, const wire::MpaEnhanced* enhanced, Bytes private_data);
  void put_terminate(wire::TerminateCode code);

  HandshakeOptions options_;
  wire::MpaFrame peer_;
  wire::MpaEnhanced peer_enhanced_;
  Negotiated negotiated_;

 private:
  void take_header();
  void take_private_data();

  wire::MpaKind expected_;  // of the peer's frame
  std::vector<std::byte> input_;
  bool complete_ = false;  // the peer's frame is whole
  std::vector<std::byte> output_;
  std::size_t output_done_ = 0;
  HandshakeFailure failure_ = HandshakeFailure::none;
};

class ActiveHandshake final : public Handshake {
 public:
  // `private_data`: at most max_private_data_bytes(options.revision); copied.
  ActiveHandshake(const HandshakeOptions& options, Bytes private_data);

  [[nodiscard]] bool accepted() const { return accepted_; }
  [[nodiscard]] bool rejected() const { return rejected_; }

 private:
  void on_frame() override;
  void agree();
  bool choose_rtr();
  void give_up(HandshakeFailure failure, wire::TerminateCode code);

  bool accepted_ = false;
  bool rejected_ = false;
};

class PassiveHandshake final : public Handshake {
 public:
  explicit PassiveHandshake(const HandshakeOptions& options);

  // The request has arrived and waits for accept() or reject().
  [[nodiscard]] bool requested() const { return requested_; }
  // IRD and ORD as the initiator sent them; 0 and 0 where its frame has none.
  [[nodiscard]] std::uint16_t requested_ird() const { return peer_enhanced_.ird; }
  [[nodiscard]] std::uint16_t requested_ord() const { return peer_enhanced_.ord; }
  [[nodiscard]] bool enhanced() const { return peer_.enhanced; }
  // The initiator is the sending end of an extended connection.
  [[nodiscard]] bool extended() const { return is_marked() && peer_.extended; }
  [[nodiscard]] std::uint8_t revision() const { return peer_.revision; }

  // `ird`, `ord`: what this side offers. Afterwards output() holds the reply.
  void accept(std::uint16_t ird, std::uint16_t ord, Bytes private_data);
  void reject(Bytes private_data);
  [[nodiscard]] bool accepted() const { return accepted_; }
  [[nodiscard]] bool rejected() const { return rejected_; }

 private:
  void on_frame() override;
  [[nodiscard]] wire::MpaFrame reply_frame() const;
  [[nodiscard]] bool is_marked() const;

  bool requested_ = false;
  bool accepted_ = false;
  bool rejected_ = false;
};

}  // namespace weft::iwarp
