// The common form of the RDMA traffic of both transports, iWARP and InfiniBand/RoCE: the events of
// one connection, in the order in which the sender sent them. The transports call a TrafficSink;
// operations, RPCs, findings and extraction implement one.
//
// Every span is valid during the call only. Frame numbers start at 1, as in Wireshark. Times are
// nanoseconds since the epoch.
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

// Identifies a connection: an MPA stream, or two queue pairs that exchange datagrams or are
// connected by RC, UC or XRC. Ids are never reused within a trace; connection.hpp describes a
// connection.
using ConnectionId = std::uint32_t;

// The sender of an event: `a` is the side with the first connection request or packet.
enum class Side : std::uint8_t { a, b };
// Returns the opposite side.
[[nodiscard]] constexpr Side other(Side side) {
  return side == Side::a ? Side::b : Side::a;
}

// Where an event comes from: the connection, the side that sent it, and the frame.
struct Origin {
  ConnectionId connection = 0;
  Side side = Side::a;
  Stamp stamp;
  // The end of this part in the sender's sequence. iWARP: bytes of its TCP stream, counted from the
  // first one seen, never wrapping. InfiniBand: the PSN of the packet.
  std::uint64_t position = 0;
};

enum class SendKind : std::uint8_t { plain, solicited, invalidate, solicited_invalidate };

// A part of a Send message, at `offset` in the message. Parts of one message have the same
// `message` (MSN on iWARP, PSN of the first packet on InfiniBand). They come in order of `offset`;
// if something was lost, on_gap was called before.
//
// `missing_bytes`, here and below, counts bytes of the part after `bytes` that were on the wire but
// not in the capture. The snap length has cut them, unless `lost`: then on_gap was called for them.
struct SendPart {
  std::uint64_t message = 0;
  SendKind kind = SendKind::plain;
  std::uint64_t offset = 0;
  std::span<const std::byte> bytes;
  std::uint64_t missing_bytes = 0;
  bool lost = false;
  bool last = false;
  bool has_immediate = false;
  std::uint32_t immediate = 0;        // a number in host order
  std::uint32_t invalidated_key = 0;  // on the last part of a Send with Invalidate
};

// A part of an RDMA Write: bytes for `key` (rkey or STag) at `address` (virtual address or tagged
// offset). Middle and last packets of InfiniBand carry neither; the transport computes them.
struct WritePart {
  std::uint64_t message = 0;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::span<const std::byte> bytes;
  std::uint64_t missing_bytes = 0;
  bool lost = false;
  bool first = false;
  bool last = false;
  // Length of the whole Write if the wire has it (RETH), otherwise 0.
  std::uint64_t message_bytes = 0;
  bool has_immediate = false;
  std::uint32_t immediate = 0;
};

// A request to read `length` bytes from the other side. `request` identifies it in its responses.
// InfiniBand has no sink on the wire: has_sink is false.
struct ReadRequest {
  std::uint64_t request = 0;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  bool has_sink = false;
  std::uint32_t sink_key = 0;
  std::uint64_t sink_address = 0;
  bool repeated = false;  // a retransmission, or a request for the rest of a Read after a loss
};

// A part of the response to a Read request of the other side. `key` and `address` are those of the
// source; on iWARP they are translated from the sink. If the request was not captured, `known` is
// false, and `key` and `address` are those on the wire (the sink) or 0.
struct ReadPart {
  std::uint64_t request = 0;
  bool known = true;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::span<const std::byte> bytes;
  std::uint64_t missing_bytes = 0;
  bool lost = false;
  bool last = false;
};

// An Immediate Data message (RFC 7306), on iWARP only, numbered like Sends.
struct ImmediateMessage {
  std::uint64_t message = 0;
  bool solicited = false;
  std::span<const std::byte> bytes;  // 8 bytes, which the RFC leaves opaque
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

// A refused request or the end of the transport, in terms that fit both wires.
struct Refusal {
  enum class Kind : std::uint8_t {
    terminate,           // iWARP Terminate: the fields layer, type and code below
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
  bool has_key = false;        // valid if the header that a Terminate quotes has a key
  std::uint32_t key = 0;
  std::uint64_t address = 0;
};

// Bytes of one side that were on the wire but not in the capture (dropped by the capture, cut by
// the snap length), or bytes in an unknown order.
struct Gap {
  std::uint64_t wire_bytes = 0;  // TCP bytes; 0 for lost packets of InfiniBand
  std::uint32_t packets = 0;     // lost PSNs on InfiniBand, otherwise 0
  bool cut = false;              // the snap length cut the bytes, so their packet was captured
};

// A violation of the protocol by a sender, or damage that the network did not report.
struct Violation {
  enum class Kind : std::uint8_t {
    bad_checksum,        // MPA CRC or ICRC; found: value in the packet, expected: computed value
    bad_marker,          // MPA
    bad_version,         // of DDP, RDMAP or BTH; found: the version
    bad_header,          // invalid combination of reserved bits, opcode and queue
    unexpected_message,  // MSN; found and expected
    unexpected_offset,   // MO; found and expected
    answer_without_request,  // found: key on the wire
    answer_beyond_request,   // longer than the request; found and expected: bytes
    wrong_length,            // of an InfiniBand packet or message; found and expected: bytes
  };
  Kind kind = Kind::bad_checksum;
  std::uint64_t found = 0;
  std::uint64_t expected = 0;
};

// Congestion in the network, as RoCE v2 reports it (Annex A17.9).
enum class Congestion : std::uint8_t {
  marked,    // a switch marked the packet
  notified,  // the sender received a marked packet and asks the other side to slow down
};

// The packets of a sender have begun to take another path, and go on to do so. Switches choose
// among equal paths by the source port of RoCE v2 (Annex A17.9.2), and the hop limit shows how many
// routers a packet has passed.
struct PathChange {
  enum class Kind : std::uint8_t {
    hop_limit,    // hop limit of IPv6, time to live of IPv4
    source_port,  // of UDP, in RoCE v2
  };
  Kind kind = Kind::hop_limit;
  std::uint32_t before = 0;
  std::uint32_t after = 0;
};

// InfiniBand's end-to-end credits (§9.7.7.2): after everything up to `psn`, `credits` receives are
// posted. Not reported if the responder does not count its receives.
struct CreditUpdate {
  std::uint32_t psn = 0;
  std::uint32_t credits = 0;
};

class TrafficSink {
 public:
  virtual ~TrafficSink() = default;
  // A part of a Send was placed.
  virtual void on_send(const Origin&, const SendPart&) {}
  // A part of an RDMA Write was placed.
  virtual void on_write(const Origin&, const WritePart&) {}
  // A side asks for memory of the other one.
  virtual void on_read_request(const Origin&, const ReadRequest&) {}
  // A part of the answer; `origin.side` is the side that answers.
  virtual void on_read_part(const Origin&, const ReadPart&) {}
  // iWARP: Immediate Data (RFC 7306 §6).
  virtual void on_immediate(const Origin&, const ImmediateMessage&) {}
  // A side asks for an atomic operation on memory of the other one.
  virtual void on_atomic_request(const Origin&, const AtomicRequest&) {}
  // The answer to it, with the previous value.
  virtual void on_atomic_answer(const Origin&, const AtomicAnswer&) {}
  // InfiniBand: everything of the other side up to and including `psn` was acknowledged.
  virtual void on_acknowledge(const Origin&, std::uint32_t /*psn*/) {}
  // InfiniBand: how many messages that need a receive the other side may send.
  virtual void on_credits(const Origin&, const CreditUpdate&) {}
  // iWARP: the TCP of `origin.side` has acknowledged all bytes of the other side before `position`.
  virtual void on_received(const Origin&, std::uint64_t /*position*/) {}
  // iWARP: the TCP of `origin.side` announced that it can receive nothing now (RFC 9293 §3.8.6),
  // or, if `open`, that it can again.
  virtual void on_window(const Origin&, bool /*open*/) {}
  // iWARP: the TCP of `origin.side` asked whether the window of the other side, which is closed, is
  // open again (a persist probe, RFC 9293 §3.8.6.1).
  virtual void on_window_probe(const Origin&) {}
  // A NAK of InfiniBand, or a Terminate of iWARP.
  virtual void on_refusal(const Origin&, const Refusal&) {}
  // Bytes or packets that were seen before were sent again.
  virtual void on_repeat(const Origin&, std::uint64_t /*wire_bytes*/) {}
  // Bytes or packets of `origin.side` are not in the capture, or cannot be decoded.
  virtual void on_gap(const Origin&, const Gap&) {}
  // A packet came after later ones of its side, which have waited for it for `delay_ns`: it took
  // another path, or it is a retransmission of a packet that was lost before the capture.
  virtual void on_late(const Origin&, std::int64_t /*delay_ns*/) {}
  // `origin.side` has broken a rule of the protocol.
  virtual void on_violation(const Origin&, const Violation&) {}
  // A packet has met congestion, or a side was notified of it.
  virtual void on_congestion(const Origin&, Congestion) {}
  // The packets of `origin.side` take another path than before.
  virtual void on_path_change(const Origin&, const PathChange&) {}
  // The connection has ended; with TCP perhaps by a reset.
  virtual void on_end(const Origin&, bool /*reset*/) {}
  // A connection is dropped before the end of the trace, because too many are known. First on_close
  // asks all sinks to report what is open of it, then on_forget asks them to free it. It stays in
  // the table until on_forget has returned.
  virtual void on_close(ConnectionId) {}
  // Frees what is known of the connection.
  virtual void on_forget(ConnectionId) {}
};

}  // namespace weft::capture
