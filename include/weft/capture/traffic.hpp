// What both transports, iWARP and InfiniBand/RoCE, are reduced to: RDMA traffic of one connection,
// in the order in which the sender sent it. The transports below call a TrafficSink; operations,
// RPCs, findings and extraction above implement one.
//
// Every span is valid during the call only. Numbers of frames start at 1, as Wireshark's do; times
// are nanoseconds since the epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/bytes.hpp"

namespace weft::capture {

struct Stamp {
  std::uint64_t frame = 0;
  std::int64_t time_ns = 0;
};

// A connection: an MPA stream, or two queue pairs that exchange datagrams or are connected by RC,
// UC or XRC. Never reused within a trace; connection.hpp describes it.
using ConnectionId = std::uint32_t;

// Who sent: the side whose connection request or packet was seen first is `a`.
enum class Side : std::uint8_t { a, b };
[[nodiscard]] constexpr Side other(Side side) {
  return side == Side::a ? Side::b : Side::a;
}

// One frame's part of the traffic of one side.
struct Origin {
  ConnectionId connection = 0;
  Side side = Side::a;
  Stamp stamp;
  // How far the side's sending has come with this part. iWARP: bytes of its TCP stream, counted
  // from the first one seen, never wrapping. InfiniBand: the packet's PSN.
  std::uint64_t position = 0;
};

enum class SendKind : std::uint8_t { plain, solicited, invalidate, solicited_invalidate };

// A part of a Send message, placed at `offset` of the message. Parts of one message have the same
// `message` (MSN on iWARP, PSN of the first packet on InfiniBand) and come in order of `offset`
// unless something was lost, which on_gap has said before.
//
// `missing_bytes`, here and below: bytes of the part behind `bytes` that were on the wire but not
// in the capture, most often because of the snap length.
struct SendPart {
  std::uint64_t message = 0;
  SendKind kind = SendKind::plain;
  std::uint64_t offset = 0;
  std::span<const std::byte> bytes;
  std::uint64_t missing_bytes = 0;
  bool last = false;
  bool has_immediate = false;
  std::uint32_t immediate = 0;        // as a number, from network order
  std::uint32_t invalidated_key = 0;  // of the kinds that invalidate, on the last part
};

// A part of an RDMA Write: bytes for `key` (rkey or STag) at `address` (virtual address or TO).
// InfiniBand's middle and last packets carry neither; the transport has worked them out.
struct WritePart {
  std::uint64_t message = 0;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::span<const std::byte> bytes;
  std::uint64_t missing_bytes = 0;
  bool first = false;
  bool last = false;
  // Of the whole Write where the wire says it (RETH), else 0.
  std::uint64_t message_bytes = 0;
  bool has_immediate = false;
  std::uint32_t immediate = 0;
};

// A request to read `length` bytes from the other side. `request` names it in its answers. On
// InfiniBand there is no sink on the wire: has_sink is false.
struct ReadRequest {
  std::uint64_t request = 0;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  bool has_sink = false;
  std::uint32_t sink_key = 0;
  std::uint64_t sink_address = 0;
  bool repeated = false;  // a retransmission, or the rest of a read after a loss
};

// A part of the answer to the other side's request: `key` and `address` are those of the source,
// translated from the sink on iWARP. Where the request was not seen, known is false and key and
// address are those on the wire (sink) or 0.
struct ReadPart {
  std::uint64_t request = 0;
  bool known = true;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::span<const std::byte> bytes;
  std::uint64_t missing_bytes = 0;
  bool last = false;
};

// iWARP only: an Immediate Data message (RFC 7306), in the same numbering as Sends.
struct ImmediateMessage {
  std::uint64_t message = 0;
  bool solicited = false;
  std::span<const std::byte> bytes;  // 8, which the RFC leaves opaque
};

enum class AtomicKind : std::uint8_t { fetch_add, compare_swap, other };

struct AtomicRequest {
  std::uint64_t request = 0;
  AtomicKind kind = AtomicKind::other;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
};

struct AtomicAnswer {
  std::uint64_t request = 0;
  std::uint64_t original = 0;
};

// What the responder refuses or the transport ends with, in words of both wires.
struct Refusal {
  enum class Kind : std::uint8_t {
    terminate,           // iWARP Terminate: layer, type and code below
    sequence_error,      // InfiniBand NAK 0
    invalid_request,     // NAK 1
    access_error,        // NAK 2
    operational_error,   // NAK 3
    invalid_rd_request,  // NAK 4
    receiver_not_ready,  // RNR NAK, with its timer
  };
  Kind kind = Kind::terminate;
  std::uint8_t layer = 0;
  std::uint8_t type = 0;
  std::uint8_t code = 0;
  std::uint32_t psn = 0;       // InfiniBand
  std::uint64_t timer_ns = 0;  // RNR
  bool has_key = false;        // of the header that a Terminate quotes
  std::uint32_t key = 0;
  std::uint64_t address = 0;
};

// Bytes of one side that were on the wire but not in the capture (lost by the capture, cut by the
// snap length), or whose order cannot be known.
struct Gap {
  std::uint64_t wire_bytes = 0;  // TCP bytes or, on InfiniBand, 0
  std::uint32_t packets = 0;     // PSNs on InfiniBand, or 0
};

// What a sender did that its protocol forbids, or what the network did to it unnoticed.
struct Violation {
  enum class Kind : std::uint8_t {
    bad_checksum,            // CRC of MPA, or ICRC; found: what was there, expected: what fits
    bad_marker,              // MPA
    bad_version,             // of DDP, RDMAP or BTH; found: the number
    bad_header,              // reserved bits, opcode or queue that do not go together
    unexpected_message,      // MSN; found and expected
    unexpected_offset,       // MO; found and expected
    answer_without_request,  // found: the key on the wire
    answer_beyond_request,   // more than was asked for; found and expected: bytes
    wrong_length,            // a packet or message of InfiniBand; found and expected: bytes
  };
  Kind kind = Kind::bad_checksum;
  std::uint64_t found = 0;
  std::uint64_t expected = 0;
};

// What RoCE v2 has to say about queues in the network (Annex A17.9).
enum class Congestion : std::uint8_t {
  marked,    // the packet met some
  notified,  // the sender has received such a packet, and asks for less
};

// InfiniBand's end-to-end credits (§9.7.7.2): with everything up to `psn` done, so many receives
// are posted. Not told where the responder does not count them.
struct CreditUpdate {
  std::uint32_t psn = 0;
  std::uint32_t credits = 0;
};

class TrafficSink {
 public:
  virtual ~TrafficSink() = default;
  virtual void on_send(const Origin&, const SendPart&) {}
  virtual void on_write(const Origin&, const WritePart&) {}
  virtual void on_read_request(const Origin&, const ReadRequest&) {}
  virtual void on_read_part(const Origin&, const ReadPart&) {}
  virtual void on_immediate(const Origin&, const ImmediateMessage&) {}
  virtual void on_atomic_request(const Origin&, const AtomicRequest&) {}
  virtual void on_atomic_answer(const Origin&, const AtomicAnswer&) {}
  // InfiniBand: everything of the other side up to and with `psn` has been acknowledged.
  virtual void on_acknowledge(const Origin&, std::uint32_t /*psn*/) {}
  // InfiniBand: how many messages the other side may send that need a receive.
  virtual void on_credits(const Origin&, const CreditUpdate&) {}
  // iWARP: the TCP of `origin.side` has everything of the other side before `position`.
  virtual void on_received(const Origin&, std::uint64_t /*position*/) {}
  virtual void on_refusal(const Origin&, const Refusal&) {}
  // Repeats of bytes or packets that were seen already.
  virtual void on_repeat(const Origin&, std::uint64_t /*wire_bytes*/) {}
  virtual void on_gap(const Origin&, const Gap&) {}
  virtual void on_violation(const Origin&, const Violation&) {}
  virtual void on_congestion(const Origin&, Congestion) {}
  virtual void on_end(const Origin&, bool /*reset*/) {}
  // Before the trace is at its end a connection is dropped, as too many are known. First all sinks
  // are asked to give out what is open of it, then to forget it; it is in the table until then.
  virtual void on_close(ConnectionId) {}
  virtual void on_forget(ConnectionId) {}
};

}  // namespace weft::capture
