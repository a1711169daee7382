#include "connection/control.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/full_barrier.h"

namespace weft::connection::detail {
namespace {

using RecordBytes = std::array<std::byte, ControlRecord::encoded_bytes>;

// Copies a record that the peer's device may be writing at this moment. The data race is intended:
// the CRC of the record shows whether the copy is whole.
__attribute__((no_sanitize("thread"), noinline)) RecordBytes copy_record(const std::byte* at) {
  RecordBytes record;
  for (std::size_t i = 0; i < record.size(); ++i) {
    record[i] = *static_cast<const volatile std::byte*>(at + i);
  }
  full_barrier();
  return record;
}

// Copies the peer's count. It is aligned, so the device writes it and this reads it as a whole.
__attribute__((no_sanitize("thread"), noinline)) CountBytes copy_count(const std::byte* at) {
  const std::uint64_t count = *reinterpret_cast<const volatile std::uint64_t*>(at);
  return std::bit_cast<CountBytes>(count);
}

}  // namespace

Control::Control(const verbs::ProtectionDomain& domain)
    : shared_(domain.allocate<std::byte>(ControlLayout::bytes(ring_slots),
                                         verbs::Access::remote_write)),
      staging_(domain.allocate<std::byte>(ControlLayout::bytes(ring_slots))) {}

void Control::set_peer(const verbs::RemoteSlice& region, std::uint16_t slots) {
  peer_ = region;
  peer_slots_ = slots;
}

std::uint32_t Control::records_under_way() const {
  return std::min(peer_slots_, ring_slots);
}

std::optional<Control::Write> Control::announce(const Advertisement& advertisement) {
  const auto taken =
      static_cast<std::uint32_t>(count_from_bytes(copy_count(shared_.elements().data())));
  // The difference of two counters of 32 bits, which may wrap around.
  if (announced_ - taken >= records_under_way()) return std::nullopt;
  const std::uint32_t number = announced_ + 1;
  const std::size_t place = ControlLayout::record_offset(number, ring_slots);
  const ControlRecord record{number, advertisement.buffer, advertisement.tag};
  std::ranges::copy(record.to_bytes(), staging_.elements().begin() + place);
  return Write{
      staging_.slice(place, ControlRecord::encoded_bytes),
      peer_.slice(ControlLayout::record_offset(number, peer_slots_), ControlRecord::encoded_bytes)};
}

// A record is valid if it has the next number and a right CRC; anything else is an old record, or
// one that is still being written.
std::optional<Advertisement> Control::take() {
  const std::uint32_t number = taken_ + 1;
  const auto bytes =
      copy_record(shared_.elements().data() + ControlLayout::record_offset(number, ring_slots));
  const auto record = ControlRecord::parse(bytes, number);
  if (!record) return std::nullopt;
  taken_ = number;
  return Advertisement{.buffer = record->buffer, .tag = record->tag};
}

// The peer stages its records in a ring as large as the one that it has announced.
std::optional<Control::Write> Control::report() {
  const std::uint32_t often_enough = std::max(records_under_way() / 4, 1U);
  // Each report costs a Write, so several records share one.
  if (taken_ - reported_ < often_enough) return std::nullopt;
  std::ranges::copy(count_to_bytes(taken_), staging_.elements().begin());
  return Write{staging_.slice(0, ControlLayout::count_bytes),
               peer_.slice(0, ControlLayout::count_bytes)};
}

}  // namespace weft::connection::detail
