// Headers of InfiniBand's transport layer: InfiniBand Architecture Specification, volume 1, chapter
// 9, to which the paragraphs below belong.
#include "wire/ib_transport.h"

#include <algorithm>
#include <array>

namespace weft::wire {

namespace field::deth {
constexpr Field32 queue_key{0};
constexpr Field32 source_qp{queue_key.end()};  // 24 bits
static_assert(source_qp.end() == Deth::header_bytes);
}  // namespace field::deth

namespace field::reth {
constexpr Field64 address{0};
constexpr Field32 key{address.end()};
constexpr Field32 length_bytes{key.end()};
static_assert(length_bytes.end() == Reth::header_bytes);
}  // namespace field::reth

namespace field::atomic_eth {
constexpr Field64 address{0};
constexpr Field32 key{address.end()};
constexpr Field64 swap_or_add{key.end()};
constexpr Field64 compare{swap_or_add.end()};
static_assert(compare.end() == AtomicEth::header_bytes);
}  // namespace field::atomic_eth

namespace field::aeth {
constexpr Field8 syndrome{0};
constexpr Field32 syndrome_and_msn{0};  // the MSN has 24 bits
static_assert(syndrome_and_msn.end() == Aeth::header_bytes);
}  // namespace field::aeth

namespace {

constexpr std::size_t word_bytes = 4;
constexpr std::size_t atomic_ack_bytes = 8;

// Of the flags of the BTH, of the byte before the QPN, and of the byte before the PSN.
constexpr unsigned solicited_bit = 0x80;
constexpr unsigned migrated_bit = 0x40;
constexpr unsigned pad_shift = 4;
constexpr unsigned pad_mask = 3;
constexpr unsigned version_mask = 0x0F;
constexpr std::uint8_t fecn_bit = 0x80;
constexpr std::uint8_t becn_bit = 0x40;
constexpr std::uint8_t acknowledge_bit = 0x80;

// Many headers have a number of 24 bits behind eight bits that are reserved or mean something else.
std::uint32_t load_24(const std::byte* at) {
  return load_be<std::uint32_t>(at) & psn_mask;
}

void store_24(std::byte* at, std::uint8_t before, std::uint32_t value) {
  store_be(at, std::uint32_t{before} << 24 | (value & psn_mask));
}

// §9.7.5.2.8: the times in microseconds, by code. Code 0 is the longest time.
constexpr std::array<std::uint32_t, 32> rnr_timers{
    655'360, 10,     20,     30,     40,     60,      80,      120,     160,     240,    320,
    480,     640,    960,    1'280,  1'920,  2'560,   3'840,   5'120,   7'680,   10'240, 15'360,
    20'480,  30'720, 40'960, 61'440, 81'920, 122'880, 163'840, 245'760, 327'680, 491'520};

}  // namespace

// --- Base Transport Header -----------------------------------------------------------------------

// Only the size is checked here: the version and the partition key are for the caller.
Result<Bth, WireError> Bth::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::bth;
  const std::byte* from = bytes.data();
  const unsigned flags = at::flags.load(from);
  const std::uint32_t congestion_and_qp = at::congestion_and_qp.load(from);
  const std::uint32_t acknowledge_and_psn = at::acknowledge_and_psn.load(from);
  return Bth{.opcode = IbOpcode::of(at::opcode.load(from)),
             .solicited = (flags & solicited_bit) != 0,
             .migrated = (flags & migrated_bit) != 0,
             .pad_bytes = static_cast<std::uint8_t>(flags >> pad_shift & pad_mask),
             .version = static_cast<std::uint8_t>(flags & version_mask),
             .partition_key = at::partition_key.load(from),
             .fecn = (congestion_and_qp >> 24 & fecn_bit) != 0,
             .becn = (congestion_and_qp >> 24 & becn_bit) != 0,
             .destination_qp = congestion_and_qp & psn_mask,
             .acknowledge_request = (acknowledge_and_psn >> 24 & acknowledge_bit) != 0,
             .psn = acknowledge_and_psn & psn_mask};
}

void Bth::emit(MutableBytes out) const {
  namespace at = field::bth;
  std::byte* to = out.data();
  const unsigned flags = (solicited ? solicited_bit : 0) | (migrated ? migrated_bit : 0) |
                         (pad_bytes & pad_mask) << pad_shift | (version & version_mask);
  at::opcode.store(to, opcode.code());
  at::flags.store(to, static_cast<std::uint8_t>(flags));
  at::partition_key.store(to, partition_key);
  const auto congestion = static_cast<std::uint8_t>((fecn ? fecn_bit : 0) | (becn ? becn_bit : 0));
  store_24(to + at::congestion_and_qp.at, congestion, destination_qp);
  store_24(to + at::acknowledge_and_psn.at, acknowledge_request ? acknowledge_bit : 0, psn);
}

// --- Extended headers ----------------------------------------------------------------------------

Result<Deth, WireError> Deth::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::deth;
  return Deth{.queue_key = at::queue_key.load(bytes.data()),
              .source_qp = load_24(bytes.data() + at::source_qp.at)};
}

void Deth::emit(MutableBytes out) const {
  namespace at = field::deth;
  at::queue_key.store(out.data(), queue_key);
  store_24(out.data() + at::source_qp.at, 0, source_qp);
}

Result<Reth, WireError> Reth::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::reth;
  return Reth{.address = at::address.load(bytes.data()),
              .key = at::key.load(bytes.data()),
              .length_bytes = at::length_bytes.load(bytes.data())};
}

void Reth::emit(MutableBytes out) const {
  namespace at = field::reth;
  at::address.store(out.data(), address);
  at::key.store(out.data(), key);
  at::length_bytes.store(out.data(), length_bytes);
}

Result<AtomicEth, WireError> AtomicEth::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::atomic_eth;
  const std::byte* from = bytes.data();
  return AtomicEth{.address = at::address.load(from),
                   .key = at::key.load(from),
                   .swap_or_add = at::swap_or_add.load(from),
                   .compare = at::compare.load(from)};
}

void AtomicEth::emit(MutableBytes out) const {
  namespace at = field::atomic_eth;
  std::byte* to = out.data();
  at::address.store(to, address);
  at::key.store(to, key);
  at::swap_or_add.store(to, swap_or_add);
  at::compare.store(to, compare);
}

namespace {

// The syndrome has a reserved bit, two bits for the kind and five for the value, which is a credit
// count, a timer or the code of a NAK.
Aeth make_aeth(Aeth::Kind kind, std::uint8_t value, std::uint32_t msn) {
  const unsigned syndrome = static_cast<unsigned>(kind) << 5 | (value & 0x1FU);
  return {.syndrome = static_cast<std::uint8_t>(syndrome), .msn = msn};
}

}  // namespace

Aeth Aeth::ack(std::uint32_t msn, std::uint8_t credit_code) {
  return make_aeth(Kind::ack, credit_code, msn);
}

Aeth Aeth::rnr_nak(std::uint32_t msn, std::uint8_t timer_code) {
  return make_aeth(Kind::rnr_nak, timer_code, msn);
}

Aeth Aeth::nak(std::uint32_t msn, Nak code) {
  return make_aeth(Kind::nak, static_cast<std::uint8_t>(code), msn);
}

// §9.7.7.2: the codes mean 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, … 32768.
std::optional<std::uint32_t> Aeth::credits() const {
  const unsigned code = value();
  if (kind() != Kind::ack || code == no_credit_limit) return {};
  if (code < 2) return code;
  const std::uint32_t power = 1U << code / 2;
  return code % 2 == 0 ? power : power + power / 2;
}

Result<Aeth, WireError> Aeth::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::aeth;
  return Aeth{.syndrome = at::syndrome.load(bytes.data()),
              .msn = load_24(bytes.data() + at::syndrome_and_msn.at)};
}

void Aeth::emit(MutableBytes out) const {
  store_24(out.data() + field::aeth::syndrome_and_msn.at, syndrome, msn);
}

std::uint32_t rnr_timer_us(std::uint8_t code) {
  return rnr_timers[code & 0x1F];
}

std::uint8_t rnr_timer_code(std::uint32_t timer_us) {
  // Code 0 is the longest time, so the ascending part begins behind it. A time between two codes
  // becomes the longer one: the timer is a minimum.
  const auto* const shortest = &rnr_timers[1];
  const auto* const end = rnr_timers.data() + rnr_timers.size();
  const auto* const found = std::lower_bound(shortest, end, timer_us);
  return found == end ? 0 : static_cast<std::uint8_t>(found - rnr_timers.data());
}

// --- All of a packet's headers -------------------------------------------------------------------

std::size_t IbLayout::size() const {
  std::size_t bytes = 0;
  if (rdeth) bytes += word_bytes;
  if (deth) bytes += Deth::header_bytes;
  if (xrceth) bytes += word_bytes;
  if (reth) bytes += Reth::header_bytes;
  if (atomic) bytes += AtomicEth::header_bytes;
  if (aeth) bytes += Aeth::header_bytes;
  if (atomic_ack) bytes += atomic_ack_bytes;
  if (immediate) bytes += word_bytes;
  if (invalidate) bytes += word_bytes;
  return bytes;
}

// The sizes of all headers are known from the opcode, so one comparison covers every access below.
Result<IbHeaders, WireError> IbHeaders::parse(Bytes bytes) {
  const auto bth = Bth::parse(bytes);
  if (!bth) return bth.error();
  IbHeaders headers{.bth = *bth};
  const IbLayout layout = headers.layout();
  bytes = bytes.subspan(Bth::header_bytes);
  if (bytes.size() < layout.size()) return WireError::truncated;
  const auto take = [&bytes](std::size_t size) {
    const Bytes header = bytes.first(size);
    bytes = bytes.subspan(size);
    return header;
  };
  if (layout.rdeth) headers.ee_context = load_24(take(word_bytes).data());
  if (layout.deth) headers.deth = *Deth::parse(take(Deth::header_bytes));
  if (layout.xrceth) headers.xrc_srq = load_24(take(word_bytes).data());
  if (layout.reth) headers.reth = *Reth::parse(take(Reth::header_bytes));
  if (layout.atomic) headers.atomic = *AtomicEth::parse(take(AtomicEth::header_bytes));
  if (layout.aeth) headers.aeth = *Aeth::parse(take(Aeth::header_bytes));
  if (layout.atomic_ack) {
    headers.atomic_original = load_be<std::uint64_t>(take(atomic_ack_bytes).data());
  }
  if (layout.immediate) headers.immediate = load_be<std::uint32_t>(take(word_bytes).data());
  if (layout.invalidate) headers.invalidated_key = load_be<std::uint32_t>(take(word_bytes).data());
  return headers;
}

// The headers have the same order here, in parse() and in IbLayout::size().
void IbHeaders::emit(MutableBytes out) const {
  const IbLayout layout = this->layout();
  const auto take = [&out](std::size_t size) {
    const MutableBytes header = out.first(size);
    out = out.subspan(size);
    return header;
  };
  bth.emit(take(Bth::header_bytes));
  if (layout.rdeth) store_24(take(word_bytes).data(), 0, ee_context);
  if (layout.deth) deth.emit(take(Deth::header_bytes));
  if (layout.xrceth) store_24(take(word_bytes).data(), 0, xrc_srq);
  if (layout.reth) reth.emit(take(Reth::header_bytes));
  if (layout.atomic) atomic.emit(take(AtomicEth::header_bytes));
  if (layout.aeth) aeth.emit(take(Aeth::header_bytes));
  if (layout.atomic_ack) store_be(take(atomic_ack_bytes).data(), atomic_original);
  if (layout.immediate) store_be(take(word_bytes).data(), immediate);
  if (layout.invalidate) store_be(take(word_bytes).data(), invalidated_key);
}

// `wire_bytes` is the length that the packet had, of which a capture may hold less: a cut packet
// has headers and a part of its payload, and no ICRC.
Result<IbPacketView, WireError> IbPacketView::check(Bytes packet, std::size_t wire_bytes) {
  packet = packet.first(std::min(packet.size(), wire_bytes));
  const bool cut = packet.size() < wire_bytes;
  const auto headers = IbHeaders::parse(packet);
  // A whole packet that is too short for its headers has a wrong length. Of a cut packet only too
  // little was captured.
  if (!headers) return cut ? headers.error() : WireError::bad_length;
  IbPacketView view;
  view.headers_ = *headers;
  view.layout_ = headers->layout();
  const std::size_t before = headers->size();
  // The pad of up to three bytes and the ICRC are behind the payload.
  const std::size_t behind = headers->bth.pad_bytes + icrc_bytes;
  if (wire_bytes < before + behind) return WireError::bad_length;
  view.payload_wire_bytes_ = wire_bytes - before - behind;
  const Bytes rest = packet.subspan(before);
  view.payload_ = rest.first(std::min(rest.size(), view.payload_wire_bytes_));
  if (cut) return view;
  view.covered_ = packet.first(wire_bytes - icrc_bytes);
  // The ICRC is transmitted least significant byte first, unlike every other field of InfiniBand.
  view.icrc_ = load_le<std::uint32_t>(packet.data() + view.covered_.size());
  return view;
}

}  // namespace weft::wire
