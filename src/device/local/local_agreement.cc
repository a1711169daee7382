#include "device/local/local_agreement.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace weft::device {
namespace {

// Also identifies the layout of inbox, bells and grants, which depends on the size of an address.
constexpr std::uint32_t offer_magic = 0x57464C00 + (11 << 4) + sizeof(void*);
constexpr std::byte ready{2};
constexpr std::byte ready_staged{4};
// Inbox, grants, counts; then the program's memory and its bell, if there are any.
constexpr std::size_t memory_at = 3;
constexpr std::size_t bell_at = 4;
constexpr std::size_t most_files = 5;

}  // namespace

struct LocalAgreement::Offer {
  std::uint32_t magic = offer_magic;
  std::uint32_t receives = 0;
  ProcessMark::Name mark;
  // Of the active side: not 0 if it reaches the memory of the passive side.
  std::uint64_t reaches = 0;
};

LocalAgreement::LocalAgreement(LocalChannel& channel, bool active, const SharedMemory& own,
                               std::uint32_t receives, const GrantTable& grants,
                               PeerProcesses& processes, const SharedFiles& shared)
    : channel_(channel),
      active_(active),
      own_(own),
      receives_(receives),
      grants_(grants),
      processes_(processes),
      shared_(shared) {}

// The passive side offers first. Its offer, the answer with the active side's own, and `ready` are
// all the messages.
LocalAgreement::State LocalAgreement::begin() {
  return active_ || send_offer() ? State::pending : State::refused;
}

LocalAgreement::State LocalAgreement::advance() {
  while (auto message = channel_.receive()) {
    // The end of the channel: the peer stays on TCP.
    if (message->bytes.empty()) return State::refused;
    if (!offer_taken_) {
      if (!take_offer(std::move(*message))) return refuse();
      if (active_) {
        if (!send_offer()) return State::refused;
        continue;
      }
      const std::byte answer = peer_.staged ? ready_staged : ready;
      return channel_.send({&answer, 1}) ? State::agreed : State::refused;
    }
    const std::byte answer = message->bytes.front();
    peer_.staged = answer == ready_staged;
    // A peer that reaches this process decides; one that this process does not reach cannot.
    const bool possible = peer_.staged || (answer == ready && peer_.process->reachable());
    return possible ? State::agreed : refuse();
  }
  return State::pending;
}

LocalAgreement::State LocalAgreement::refuse() {
  refuses_peer_ = true;
  return State::refused;
}

bool LocalAgreement::send_offer() {
  const bool reaches = peer_.process && peer_.process->reachable();
  const Offer offer{
      .receives = receives_, .mark = grants_.mark(), .reaches = reaches ? std::uint64_t{1} : 0};
  const std::array<int, most_files> all{own_.file(), grants_.read_only_file(), grants_.count_file(),
                                        shared_.memory.get(), shared_.bell.get()};
  // Files of the programs are shared by both or not at all, and the passive side cannot know yet.
  const bool shares = shared_.memory.valid() && (!active_ || peer_.shared.memory.valid());
  const std::size_t count = !shares ? memory_at : shared_.bell.valid() ? most_files : bell_at;
  const auto files = std::span(all).first(count);
  if (channel_.send(std::as_bytes(std::span(&offer, 1)), files)) return true;
  refusal_ = "memory cannot be shared";
  return false;
}

// Maps the peer's memory, and looks for its mark: that is found only if the process number means
// the same to both.
bool LocalAgreement::take_offer(LocalChannel::Message message) {
  Offer offer;
  // Whatever the offer has is checked before it is used: a process of the same user may still be of
  // another version.
  refusal_ = "the other end offers something else";
  const std::size_t files = message.descriptors.size();
  if (message.bytes.size() != sizeof offer || files < memory_at || files > most_files) {
    return false;
  }
  std::memcpy(&offer, message.bytes.data(), sizeof offer);
  constexpr std::uint32_t most_receives = 1U << 14;
  // A power of two, since receive numbers are reduced to places by a mask.
  if (offer.magic != offer_magic || !std::has_single_bit(offer.receives) ||
      offer.receives > most_receives) {
    return false;
  }
  peer_.receives = offer.receives;
  peer_.inbox =
      SharedMemory::open(std::move(message.descriptors[0]), inbox::bytes_for(offer.receives), true);
  if (!peer_.inbox.valid()) return false;
  if (files > memory_at) peer_.shared.memory = std::move(message.descriptors[memory_at]);
  if (files > bell_at) peer_.shared.bell = std::move(message.descriptors[bell_at]);
  offer_taken_ = find_process(offer.mark, std::move(message.descriptors[1]),
                              std::move(message.descriptors[2]));
  peer_.staged = !active_ && offer_taken_ && (offer.reaches == 0 || !peer_.process->reachable());
  return offer_taken_;
}

// Connections to one process share what this process holds of it.
bool LocalAgreement::find_process(ProcessMark::Name mark, sys::Descriptor grants,
                                  sys::Descriptor counts) {
  refusal_ = "the process of the other end cannot be found by its number";
  peer_.process =
      processes_.find_or_open(channel_.peer(), mark, std::move(grants), std::move(counts));
  return peer_.process != nullptr;
}

}  // namespace weft::device
