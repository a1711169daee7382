#include "device/local/pair_bells.h"

#include <algorithm>

namespace weft::device {

// An owner that says of itself what is not true loses its own messages only.
bool PairMailWriter::put(PairMail& mail, Bytes header, Bytes frame) {
  const std::size_t bytes = header.size() + frame.size();
  const bool takes = mail.open.load(std::memory_order_acquire) != 0 &&
                     mail.handled.load(std::memory_order_acquire) == by_channel_;
  const bool room = put_ - mail.taken.load(std::memory_order_acquire) < PairMail::places;
  if (!takes || !room || bytes > PairMail::most_bytes) return false;
  PairMail::Place& place = mail.ring[put_ % PairMail::places];
  place.bytes = static_cast<std::uint32_t>(bytes);
  std::ranges::copy(header, place.message.begin());
  std::ranges::copy(frame, place.message.begin() + static_cast<std::ptrdiff_t>(header.size()));
  place.stamp.store(++put_, std::memory_order_release);
  return true;
}

std::optional<std::vector<std::byte>> PairMailReader::take(PairMail& mail) {
  const PairMail::Place& place = mail.ring[taken_ % PairMail::places];
  // Sequentially consistent, as the flag that the reader has cleared before: see
  // ProcessPair::take_new().
  if (place.stamp.load(std::memory_order_seq_cst) != taken_ + 1) return std::nullopt;
  const std::uint32_t bytes = place.bytes;
  std::vector<std::byte> message;
  if (bytes <= PairMail::most_bytes) {
    message.assign(place.message.begin(), place.message.begin() + bytes);
  }
  mail.taken.store(++taken_, std::memory_order_release);
  return message;
}

void PairMailReader::handled_of_channel(PairMail& mail) {
  mail.handled.store(++of_channel_, std::memory_order_release);
}

}  // namespace weft::device
