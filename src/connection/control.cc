#include "connection/control.h"

#include <array>
#include <atomic>

#include "base/bytes.h"
#include "base/crc32c.h"

namespace weft::connection::detail {
namespace {

using Record = std::array<std::byte, Control::record_bytes>;
constexpr std::size_t crc_offset = 28;

std::uint32_t crc_of(const Record& record) {
  return crc32c(std::span(record).first(crc_offset));
}

Record encode(std::uint32_t number, const Advertisement& advertisement) {
  Record record;
  store_be(&record[0], number);
  store_be(&record[4], advertisement.buffer.address());
  store_be(&record[12], advertisement.buffer.size_bytes());
  store_be(&record[20], advertisement.buffer.rkey());
  store_be(&record[24], advertisement.tag);
  store_be(&record[crc_offset], crc_of(record));
  return record;
}

// The device of the peer may be writing there at this moment: the checksum tells.
__attribute__((no_sanitize("thread"), noinline)) Record look_at(const std::byte* at) {
  Record record;
  for (std::size_t i = 0; i < record.size(); ++i) {
    record[i] = *static_cast<const volatile std::byte*>(at + i);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  return record;
}

// Aligned, and so written and read as a whole.
__attribute__((no_sanitize("thread"), noinline)) std::uint64_t look_at_count(const std::byte* at) {
  const auto value = *reinterpret_cast<const volatile std::uint64_t*>(at);
  return load_be<std::uint64_t>(reinterpret_cast<const std::byte*>(&value));
}

std::size_t ring_place(std::uint32_t number, std::uint16_t slots) {
  return Control::ring_offset + (number - 1) % slots * Control::record_bytes;
}

}  // namespace

Control::Control(const verbs::ProtectionDomain& domain)
    : shared_(domain.allocate<std::byte>(peer_bytes(ring_slots), verbs::Access::remote_write)),
      staging_(domain.allocate<std::byte>(peer_bytes(ring_slots))) {}

void Control::set_peer(const verbs::RemoteSlice& region, std::uint16_t slots) {
  peer_ = region;
  peer_slots_ = std::min(slots, ring_slots);
}

std::optional<Control::Write> Control::announce(const Advertisement& advertisement) {
  const auto taken = static_cast<std::uint32_t>(look_at_count(shared_.elements().data()));
  if (announced_ - taken >= peer_slots_) return std::nullopt;
  const std::uint32_t number = ++announced_;
  const std::size_t place = ring_place(number, peer_slots_);
  std::ranges::copy(encode(number, advertisement), staging_.elements().begin() + place);
  return Write{staging_.slice(place, record_bytes), peer_.slice(place, record_bytes)};
}

std::optional<Advertisement> Control::take() {
  const Record record = look_at(shared_.elements().data() + ring_place(taken_ + 1, ring_slots));
  if (load_be<std::uint32_t>(&record[0]) != taken_ + 1 ||
      load_be<std::uint32_t>(&record[crc_offset]) != crc_of(record)) {
    return std::nullopt;
  }
  ++taken_;
  return Advertisement{
      .buffer = {load_be<std::uint64_t>(&record[4]), load_be<std::uint64_t>(&record[12]),
                 load_be<std::uint32_t>(&record[20])},
      .tag = load_be<std::uint32_t>(&record[24])};
}

std::optional<Control::Write> Control::report() {
  constexpr std::uint32_t often_enough = ring_slots / 4;
  if (taken_ - reported_ < often_enough) return std::nullopt;
  reported_ = taken_;
  store_be(staging_.elements().data(), std::uint64_t{taken_});
  return Write{staging_.slice(0, sizeof(std::uint64_t)), peer_.slice(0, sizeof(std::uint64_t))};
}

}  // namespace weft::connection::detail
