#include "wire/ib_transport.h"

#include <algorithm>
#include <array>

namespace weft::wire {
namespace {

constexpr std::size_t word_bytes = 4;
constexpr std::size_t atomic_ack_bytes = 8;

// 24 bits behind 8 that belong to something else or to nobody.
std::uint32_t load_24(const std::byte* at) {
  return load_be<std::uint32_t>(at) & psn_mask;
}

void store_24(std::byte* at, std::uint8_t before, std::uint32_t value) {
  store_be(at, std::uint32_t{before} << 24 | (value & psn_mask));
}

// In microseconds, by code.
constexpr std::array<std::uint32_t, 32> rnr_timers{
    655'360, 10,     20,     30,     40,     60,      80,      120,     160,     240,    320,
    480,     640,    960,    1'280,  1'920,  2'560,   3'840,   5'120,   7'680,   10'240, 15'360,
    20'480,  30'720, 40'960, 61'440, 81'920, 122'880, 163'840, 245'760, 327'680, 491'520};

}  // namespace

// --- Base Transport Header -----------------------------------------------------------------------

Result<Bth, WireError> Bth::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const auto flags = load_be<std::uint8_t>(&bytes[1]);
  const auto congestion = load_be<std::uint8_t>(&bytes[4]);
  return Bth{.opcode = IbOpcode::of(load_be<std::uint8_t>(&bytes[0])),
             .solicited = (flags & 0x80) != 0,
             .migrated = (flags & 0x40) != 0,
             .pad_bytes = static_cast<std::uint8_t>(flags >> 4 & 3),
             .version = static_cast<std::uint8_t>(flags & 0x0F),
             .partition_key = load_be<std::uint16_t>(&bytes[2]),
             .fecn = (congestion & 0x80) != 0,
             .becn = (congestion & 0x40) != 0,
             .destination_qp = load_24(&bytes[4]),
             .acknowledge_request = (load_be<std::uint8_t>(&bytes[8]) & 0x80) != 0,
             .psn = load_24(&bytes[8])};
}

void Bth::emit(MutableBytes out) const {
  out[0] = std::byte{opcode.code()};
  out[1] = static_cast<std::byte>((solicited ? 0x80 : 0) | (migrated ? 0x40 : 0) |
                                  (pad_bytes & 3) << 4 | (version & 0x0F));
  store_be(&out[2], partition_key);
  store_24(&out[4], static_cast<std::uint8_t>((fecn ? 0x80 : 0) | (becn ? 0x40 : 0)),
           destination_qp);
  store_24(&out[8], acknowledge_request ? 0x80 : 0, psn);
}

// --- Extended headers ----------------------------------------------------------------------------

Result<Deth, WireError> Deth::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  return Deth{.queue_key = load_be<std::uint32_t>(&bytes[0]), .source_qp = load_24(&bytes[4])};
}

void Deth::emit(MutableBytes out) const {
  store_be(&out[0], queue_key);
  store_24(&out[4], 0, source_qp);
}

Result<Reth, WireError> Reth::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  return Reth{.address = load_be<std::uint64_t>(&bytes[0]),
              .key = load_be<std::uint32_t>(&bytes[8]),
              .length_bytes = load_be<std::uint32_t>(&bytes[12])};
}

void Reth::emit(MutableBytes out) const {
  store_be(&out[0], address);
  store_be(&out[8], key);
  store_be(&out[12], length_bytes);
}

Result<AtomicEth, WireError> AtomicEth::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  return AtomicEth{.address = load_be<std::uint64_t>(&bytes[0]),
                   .key = load_be<std::uint32_t>(&bytes[8]),
                   .swap_or_add = load_be<std::uint64_t>(&bytes[12]),
                   .compare = load_be<std::uint64_t>(&bytes[20])};
}

void AtomicEth::emit(MutableBytes out) const {
  store_be(&out[0], address);
  store_be(&out[8], key);
  store_be(&out[12], swap_or_add);
  store_be(&out[20], compare);
}

namespace {

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

// §9.7.7.2: 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, … 32768.
std::optional<std::uint32_t> Aeth::credits() const {
  const unsigned code = value();
  if (kind() != Kind::ack || code == no_credit_limit) return {};
  if (code < 2) return code;
  const std::uint32_t power = 1U << code / 2;
  return code % 2 == 0 ? power : power + power / 2;
}

Result<Aeth, WireError> Aeth::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  return Aeth{.syndrome = load_be<std::uint8_t>(&bytes[0]), .msn = load_24(&bytes[0])};
}

void Aeth::emit(MutableBytes out) const {
  store_24(&out[0], syndrome, msn);
}

std::uint32_t rnr_timer_us(std::uint8_t code) {
  return rnr_timers[code & 0x1F];
}

std::uint8_t rnr_timer_code(std::uint32_t timer_us) {
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

Result<IbPacketView, WireError> IbPacketView::check(Bytes packet, std::size_t wire_bytes) {
  packet = packet.first(std::min(packet.size(), wire_bytes));
  const bool cut = packet.size() < wire_bytes;
  const auto headers = IbHeaders::parse(packet);
  if (!headers) return cut ? headers.error() : WireError::bad_length;
  IbPacketView view;
  view.headers_ = *headers;
  view.layout_ = headers->layout();
  const std::size_t before = headers->size();
  const std::size_t behind = headers->bth.pad_bytes + icrc_bytes;
  if (wire_bytes < before + behind) return WireError::bad_length;
  view.payload_wire_bytes_ = wire_bytes - before - behind;
  const Bytes rest = packet.subspan(before);
  view.payload_ = rest.first(std::min(rest.size(), view.payload_wire_bytes_));
  if (cut) return view;
  view.covered_ = packet.first(wire_bytes - icrc_bytes);
  view.icrc_ = load_le<std::uint32_t>(packet.data() + view.covered_.size());
  return view;
}

}  // namespace weft::wire
