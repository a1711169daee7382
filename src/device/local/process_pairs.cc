#include "device/local/process_pairs.h"

#include <algorithm>
#include <utility>

#include "base/after_fork.h"
#include "base/own_sockets.h"
#include "device/addresses.h"
#include "device/device.h"
#include "device/limits.h"

namespace weft::device {
namespace {

// What introduces a pair: one byte.
constexpr std::byte introduction{3};
constexpr std::byte introduction_staged{5};

}  // namespace

void ProcessPairs::met(pid_t process, LocalChannel& channel, const sockaddr_storage& destination,
                       bool staged) {
  const std::lock_guard lock(mutex_);
  auto known = std::ranges::find(met_, process, &Met::process);
  if (known == met_.end()) {
    met_.push_back({.process = process, .dialing = nullptr});
    return limit();
  }
  if (!known->dialing) known->dialing = introduce(process, channel, staged);
  if (!known->dialing) return;
  Destination& noted = destinations_[key_of(destination)];
  if (noted.pair.lock() != known->dialing)
    noted = Destination{.pair = known->dialing, .refused = false};
}

// Both ends of the channel have proven who they are, so the new socket needs no proof: its other
// end is where it was sent.
std::shared_ptr<ProcessPair> ProcessPairs::introduce(pid_t process, LocalChannel& channel,
                                                     bool staged) {
  int ends[2] = {-1, -1};
  if (sys::socket_pair(SOCK_SEQPACKET, ends) < 0) return nullptr;
  LocalChannel here{sys::Descriptor(ends[0])};
  const sys::Descriptor there(ends[1]);
  SharedMemory bells = SharedMemory::create("weft-bells", ProcessPair::bells_bytes());
  if (!bells.valid()) return nullptr;
  const int files[] = {there.get(), bells.file()};
  if (!channel.send({staged ? &introduction_staged : &introduction, 1}, files)) return nullptr;
  bells.close_file();
  auto pair = std::make_shared<ProcessPair>(device_, std::move(here), std::move(bells), process,
                                            ProcessPair::Role{.dials = true, .staged = staged});
  return pair->start() ? pair : nullptr;
}

namespace {

// Null: the introduction is not complete, or what it brings cannot be mapped.
std::shared_ptr<ProcessPair> introduced_pair(Device& device, pid_t process,
                                             LocalChannel::Message message) {
  if (message.descriptors.size() != 2) return nullptr;
  sys::Descriptor socket = std::move(message.descriptors[0]);
  own_sockets::add(socket.get());
  SharedMemory bells =
      SharedMemory::open(std::move(message.descriptors[1]), ProcessPair::bells_bytes(), true);
  if (!bells.valid()) return nullptr;
  const bool staged = message.bytes.front() == introduction_staged;
  return std::make_shared<ProcessPair>(device, LocalChannel(std::move(socket)), std::move(bells),
                                       process,
                                       ProcessPair::Role{.dials = false, .staged = staged});
}

}  // namespace

void ProcessPairs::introduced(pid_t process, LocalChannel::Message message) {
  const auto pair = introduced_pair(device_, process, std::move(message));
  const std::lock_guard lock(mutex_);
  if (!pair || !pair->start()) {
    ++device_.refusals().local_refused;
    return;
  }
  serving_.push_back(pair);
  limit();
}

// With the lock. The oldest ones are at the front. A peer whose pair is closed
// here uses TCP, and may introduce another one.
void ProcessPairs::limit() {
  const auto is_closed = [](const auto& pair) { return pair && pair->close_if_idle(); };
  if (met_.size() > limits::max_idle_process_pairs) {
    const auto idle = std::ranges::find_if(
        met_, [&](const Met& met) { return !met.dialing || is_closed(met.dialing); });
    if (idle != met_.end()) met_.erase(idle);
  }
  if (serving_.size() > limits::max_idle_process_pairs) {
    const auto idle = std::ranges::find_if(serving_, is_closed);
    if (idle != serving_.end()) serving_.erase(idle);
  }
}

std::shared_ptr<ProcessPair> ProcessPairs::towards(const sockaddr_storage& destination) {
  const std::lock_guard lock(mutex_);
  if (destinations_.empty()) return nullptr;
  const auto found = destinations_.find(key_of(destination));
  if (found == destinations_.end()) return nullptr;
  if (found->second.refused) return nullptr;
  auto pair = found->second.pair.lock();
  if (pair && !pair->gone()) {
    latest_ = pair;
    return pair;
  }
  destinations_.erase(found);
  return nullptr;
}

// Remembered until another process serves the address.
void ProcessPairs::refused(const sockaddr_storage& destination) {
  const std::lock_guard lock(mutex_);
  destinations_[key_of(destination)].refused = true;
}

void ProcessPairs::remove(const ProcessPair& pair) {
  std::shared_ptr<ProcessPair> kept;  // its memory is given back without the lock
  const std::lock_guard lock(mutex_);
  for (const Met& met : met_) {
    if (met.dialing.get() == &pair) kept = met.dialing;
  }
  std::erase_if(met_, [&](const Met& met) { return met.dialing.get() == &pair; });
  std::erase_if(serving_, [&](const auto& one) { return one.get() == &pair; });
  std::erase_if(destinations_, [&](const auto& one) {
    const auto target = one.second.pair.lock();
    return !target || target.get() == &pair;
  });
}

void ProcessPairs::add(const sockaddr_storage& address,
                       const std::shared_ptr<PairListener>& listener) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back({.address = address, .key = listener.get(), .listener = listener});
}

void ProcessPairs::remove(const PairListener& listener) {
  const std::lock_guard lock(mutex_);
  std::erase_if(listeners_, [&](const Listening& one) { return one.key == &listener; });
}

// A listener on one address has precedence over one on all, as in TCP.
std::shared_ptr<PairListener> ProcessPairs::listener_at(const sockaddr_storage& destination) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<PairListener> found;
  for (const Listening& one : listeners_) {
    if (port_of(one.address) != port_of(destination)) continue;
    const bool exact = same_host_address(one.address, destination);
    const bool any = is_any_address(one.address) && one.address.ss_family == destination.ss_family;
    if (exact || (any && !found)) found = one.listener.lock();
    if (exact && found) break;
  }
  return found;
}

std::shared_ptr<ProcessPair> ProcessPairs::latest() {
  const std::lock_guard lock(mutex_);
  return latest_.lock();
}

void ProcessPairs::note_request(const std::shared_ptr<ProcessPair>& pair) {
  const std::lock_guard lock(mutex_);
  latest_ = pair;
}

void ProcessPairs::abandon_after_fork() {
  walk_after_fork(mutex_, [this] {
    for (const Met& met : met_) {
      if (met.dialing) met.dialing->abandon_after_fork();
    }
    for (const auto& pair : serving_) pair->abandon_after_fork();
  });
}

}  // namespace weft::device
