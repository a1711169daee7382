// The InfiniBand transport, as native InfiniBand, RoCE v1 and RoCE v2 carry it: the Base Transport
// Header and the extended headers behind it (InfiniBand Architecture Specification, volume 1, §9;
// Annex A14 for XRC, Annex A17 for RoCE v2 and its congestion notification).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/field.h"

namespace weft::wire {

// --- Packet sequence numbers ---------------------------------------------------------------------

inline constexpr std::uint32_t psn_mask = 0xFFFFFF;

[[nodiscard]] constexpr std::uint32_t psn_plus(std::uint32_t psn, std::uint64_t count) {
  return static_cast<std::uint32_t>((psn + count) & psn_mask);
}
// The distance from `from` to `to`, the shorter way round: -2^23 to 2^23 - 1 (§9.7.2).
[[nodiscard]] constexpr std::int32_t psn_distance(std::uint32_t from, std::uint32_t to) {
  constexpr std::uint32_t half = 1U << 23;
  return static_cast<std::int32_t>(((to - from + half) & psn_mask)) -
         static_cast<std::int32_t>(half);
}

// --- Opcodes (§9.2.1) ----------------------------------------------------------------------------

// Values outside these lists survive as values.
enum class IbTransport : std::uint8_t { rc = 0, uc = 1, rd = 2, ud = 3, cnp = 4, xrc = 5 };

enum class IbOperation : std::uint8_t {
  send_first = 0,
  send_middle = 1,
  send_last = 2,
  send_last_immediate = 3,
  send_only = 4,
  send_only_immediate = 5,
  write_first = 6,
  write_middle = 7,
  write_last = 8,
  write_last_immediate = 9,
  write_only = 10,
  write_only_immediate = 11,
  read_request = 12,
  read_response_first = 13,
  read_response_middle = 14,
  read_response_last = 15,
  read_response_only = 16,
  acknowledge = 17,
  atomic_acknowledge = 18,
  compare_swap = 19,
  fetch_add = 20,
  resync = 21,  // RD only
  send_last_invalidate = 22,
  send_only_invalidate = 23,
};

struct IbOpcode {
  IbTransport transport = IbTransport::rc;
  IbOperation operation = IbOperation::send_first;

  [[nodiscard]] static constexpr IbOpcode of(std::uint8_t code) {
    return {static_cast<IbTransport>(code >> 5), static_cast<IbOperation>(code & 0x1F)};
  }
  [[nodiscard]] constexpr std::uint8_t code() const {
    return static_cast<std::uint8_t>(static_cast<unsigned>(transport) << 5 |
                                     (static_cast<unsigned>(operation) & 0x1F));
  }
  bool operator==(const IbOpcode&) const = default;
};

// Tells the sender of a packet that it met congestion (Annex A17.9.3). The bits of its operation
// would mean Send Middle.
inline constexpr IbOpcode congestion_notification{IbTransport::cnp, IbOperation::send_middle};

[[nodiscard]] const char* describe(IbTransport transport);  // "RC"
[[nodiscard]] const char* describe(IbOperation operation);  // "Send First"

// What follows the Base Transport Header, in this order (§9.2.1, Table 38).
struct IbLayout {
  bool known = false;  // the opcode exists; otherwise everything behind the BTH is payload
  bool rdeth = false;
  bool deth = false;
  bool xrceth = false;
  bool reth = false;
  bool atomic = false;
  bool aeth = false;
  bool atomic_ack = false;
  bool immediate = false;
  bool invalidate = false;
  bool payload = false;

  [[nodiscard]] static IbLayout of(IbOpcode opcode);
  [[nodiscard]] std::size_t size() const;  // of the extended headers
};

// --- Headers -------------------------------------------------------------------------------------

// Base Transport Header, §9.2
struct Bth {
  static constexpr std::size_t header_bytes = 12;

  IbOpcode opcode{};
  bool solicited = false;
  bool migrated = true;        // path migration state: set if there is no migration
  std::uint8_t pad_bytes = 0;  // 0 to 3, behind the payload
  std::uint8_t version = 0;
  std::uint16_t partition_key = 0xFFFF;
  bool fecn = false;
  bool becn = false;
  std::uint32_t destination_qp = 0;
  bool acknowledge_request = false;
  std::uint32_t psn = 0;

  [[nodiscard]] static Result<Bth, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const Bth&) const = default;
};

namespace field::bth {
inline constexpr Field8 opcode{0};
inline constexpr Field8 flags{opcode.end()};  // solicited, migrated, pad (2 bits), version (4)
inline constexpr Field16 partition_key{flags.end()};
inline constexpr Field32 congestion_and_qp{partition_key.end()};        // FECN, BECN; 24 bits
inline constexpr Field32 acknowledge_and_psn{congestion_and_qp.end()};  // one bit; 24 bits
static_assert(acknowledge_and_psn.end() == Bth::header_bytes);
}  // namespace field::bth

// Datagram, §9.3.1
struct Deth {
  static constexpr std::size_t header_bytes = 8;

  std::uint32_t queue_key = 0;
  std::uint32_t source_qp = 0;

  [[nodiscard]] static Result<Deth, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const Deth&) const = default;
};

// RDMA, §9.3.3
struct Reth {
  static constexpr std::size_t header_bytes = 16;

  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t length_bytes = 0;

  [[nodiscard]] static Result<Reth, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const Reth&) const = default;
};

// Atomics, §9.3.4
struct AtomicEth {
  static constexpr std::size_t header_bytes = 28;

  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;

  [[nodiscard]] static Result<AtomicEth, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const AtomicEth&) const = default;
};

// Acknowledgement, §9.3.5 and §9.7.5.2
struct Aeth {
  static constexpr std::size_t header_bytes = 4;

  enum class Kind : std::uint8_t { ack = 0, rnr_nak = 1, reserved = 2, nak = 3 };
  // Of a NAK; values outside this list survive as values.
  enum class Nak : std::uint8_t {
    psn_sequence_error = 0,
    invalid_request = 1,
    remote_access_error = 2,
    remote_operational_error = 3,
    invalid_rd_request = 4,
  };
  static constexpr std::uint8_t no_credit_limit = 31;

  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;

  [[nodiscard]] static Aeth ack(std::uint32_t msn, std::uint8_t credit_code = no_credit_limit);
  [[nodiscard]] static Aeth rnr_nak(std::uint32_t msn, std::uint8_t timer_code);
  [[nodiscard]] static Aeth nak(std::uint32_t msn, Nak code);

  [[nodiscard]] Kind kind() const { return static_cast<Kind>(syndrome >> 5 & 3); }
  [[nodiscard]] std::uint8_t value() const { return syndrome & 0x1F; }
  [[nodiscard]] Nak nak_code() const { return static_cast<Nak>(value()); }
  // The receives that the responder of an ACK has posted; nothing if it does not count them.
  [[nodiscard]] std::optional<std::uint32_t> credits() const;

  [[nodiscard]] static Result<Aeth, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const Aeth&) const = default;
};

[[nodiscard]] const char* describe(Aeth::Nak code);

// The time that a requester waits after an RNR NAK with this code, 0 to 31 (§9.7.5.2.8).
[[nodiscard]] std::uint32_t rnr_timer_us(std::uint8_t code);
// The code of the shortest time that is not below `timer_us`.
[[nodiscard]] std::uint8_t rnr_timer_code(std::uint32_t timer_us);

// The Base Transport Header with the extended headers of its opcode. The headers that the opcode
// does not have are neither written nor read, and keep their defaults.
struct IbHeaders {
  Bth bth{};
  std::uint32_t ee_context = 0;  // RDETH, §9.3.2
  Deth deth{};
  std::uint32_t xrc_srq = 0;  // XRCETH, Annex A14
  Reth reth{};
  AtomicEth atomic{};
  Aeth aeth{};
  std::uint64_t atomic_original = 0;  // AtomicAckETH, §9.5.3
  std::uint32_t immediate = 0;        // ImmDt, §9.3.6: as a number, from network order
  std::uint32_t invalidated_key = 0;  // IETH, §9.3.7

  [[nodiscard]] IbLayout layout() const { return IbLayout::of(bth.opcode); }
  [[nodiscard]] std::size_t size() const { return Bth::header_bytes + layout().size(); }
  [[nodiscard]] static Result<IbHeaders, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const IbHeaders&) const = default;
};

// --- A packet ------------------------------------------------------------------------------------

// A packet with checked headers: the accessors cannot fail. Borrows the bytes.
class IbPacketView {
 public:
  static constexpr std::size_t icrc_bytes = 4;

  // `packet` goes from the BTH to the end of the ICRC, or ends earlier if the capture was cut;
  // `wire_bytes` is its size on the wire. Fails with truncated if headers are missing, with
  // bad_length if wire_bytes has no room for headers, pad and ICRC.
  [[nodiscard]] static Result<IbPacketView, WireError> check(Bytes packet, std::size_t wire_bytes);
  [[nodiscard]] static Result<IbPacketView, WireError> check(Bytes packet) {
    return check(packet, packet.size());
  }

  [[nodiscard]] const IbHeaders& headers() const { return headers_; }
  [[nodiscard]] const Bth& bth() const { return headers_.bth; }
  [[nodiscard]] const IbLayout& layout() const { return layout_; }
  // The payload without the pad; shorter than payload_wire_bytes() if the packet was cut.
  [[nodiscard]] Bytes payload() const { return payload_; }
  [[nodiscard]] std::size_t payload_wire_bytes() const { return payload_wire_bytes_; }
  // The part of these bytes that the ICRC covers, and the ICRC; nothing if the packet was cut.
  [[nodiscard]] Bytes covered() const { return covered_; }
  [[nodiscard]] std::optional<std::uint32_t> icrc() const { return icrc_; }

 private:
  IbHeaders headers_;
  IbLayout layout_;
  Bytes payload_;
  std::size_t payload_wire_bytes_ = 0;
  Bytes covered_;
  std::optional<std::uint32_t> icrc_;
};

}  // namespace weft::wire
