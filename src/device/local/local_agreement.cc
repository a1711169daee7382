#include "device/local/local_agreement.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace weft::device {
namespace {

constexpr std::uint32_t offer_magic = 0x57464C31;  // also says which layout of inbox and grants
constexpr std::byte ready{2};

}  // namespace

struct LocalAgreement::Offer {
  std::uint32_t magic = offer_magic;
  std::uint32_t receives = 0;
  std::uint64_t probe_address = 0;
  std::uint64_t probe_value = 0;
};

LocalAgreement::LocalAgreement(LocalChannel& channel, bool active, const SharedMemory& own,
                               std::uint32_t receives, const GrantTable& grants)
    : channel_(channel),
      active_(active),
      own_(own),
      receives_(receives),
      grants_(grants),
      probe_(sys::now_ns()) {}

LocalAgreement::State LocalAgreement::begin() {
  return active_ || send_offer() ? State::pending : State::refused;
}

LocalAgreement::State LocalAgreement::advance() {
  while (auto message = channel_.receive()) {
    if (message->bytes.empty()) return State::refused;
    if (!offer_taken_) {
      if (!take_offer(std::move(*message))) return State::refused;
      if (active_) {
        if (!send_offer()) return State::refused;
        continue;
      }
      return channel_.send({&ready, 1}) ? State::agreed : State::refused;
    }
    return message->bytes.front() == ready ? State::agreed : State::refused;
  }
  return State::pending;
}

bool LocalAgreement::send_offer() {
  Offer offer;
  offer.receives = receives_;
  offer.probe_address = reinterpret_cast<std::uint64_t>(&probe_);
  offer.probe_value = probe_;
  const sys::Descriptor grants = grants_.read_only_file();
  if (!grants.valid()) return false;
  const std::array<int, 2> files{own_.file(), grants.get()};
  return channel_.send(std::as_bytes(std::span(&offer, 1)), files);
}

// Maps the peer's memory, and reads its probe: that works only where the kernel lets this process
// reach the other's memory, and only if the process number means the same to both.
bool LocalAgreement::take_offer(LocalChannel::Message message) {
  Offer offer;
  if (message.bytes.size() != sizeof offer || message.descriptors.size() != 2) return false;
  std::memcpy(&offer, message.bytes.data(), sizeof offer);
  constexpr std::uint32_t most_receives = 1U << 14;
  if (offer.magic != offer_magic || !std::has_single_bit(offer.receives) ||
      offer.receives > most_receives) {
    return false;
  }
  peer_.receives = offer.receives;
  peer_.inbox =
      SharedMemory::open(std::move(message.descriptors[0]), inbox::bytes_for(offer.receives), true);
  SharedMemory grants = SharedMemory::open(std::move(message.descriptors[1]), grants::bytes, false);
  peer_.process = PeerProcess(channel_.peer());
  if (!peer_.inbox.valid() || !grants.valid() || !peer_.process.valid()) return false;
  peer_.grants = GrantView(std::move(grants));
  std::uint64_t value = 0;
  const iovec here{&value, sizeof value};
  const iovec there{reinterpret_cast<void*>(offer.probe_address), sizeof value};
  if (peer_.process.read({&here, 1}, {&there, 1}) != 0 || value != offer.probe_value) return false;
  offer_taken_ = true;
  return true;
}

}  // namespace weft::device
