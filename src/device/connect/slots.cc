#include "device/connect/slots.h"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <utility>

#include "base/after_fork.h"
#include "base/log.h"
#include "device/addresses.h"
#include "device/limits.h"

namespace weft::device {
namespace {

// This many indexes of a slot stay unused, so that each rests for a while before it is used again.
constexpr std::uint32_t resting_indexes = 1024;
constexpr std::uint32_t usable_indexes = slot::last_index - slot::first_index + 1;

}  // namespace

std::uint32_t Slots::take_number() {
  const std::lock_guard lock(mutex_);
  Slot* found = nullptr;
  for (Slot& slot : slots_) {
    // The newest slot with room: earlier ones are mostly used up.
    if (slot.in_use < usable_indexes - resting_indexes) found = &slot;
  }
  if (!found) found = claim();
  return found ? found->number << slot::index_bits | take_index(*found) : 0;
}

// While indexes remain that were never used, one of them is drawn; returned ones follow in the
// order of their return.
std::uint32_t Slots::take_index(Slot& slot) {
  ++slot.in_use;
  if (slot.drawn < slot.order.size()) {
    // One step of a Fisher-Yates shuffle: only as much is shuffled as was given out.
    const auto left = static_cast<std::uint32_t>(slot.order.size() - slot.drawn);
    std::swap(slot.order[slot.drawn], slot.order[slot.drawn + random_.below(left)]);
    return slot.order[slot.drawn++];
  }
  const std::uint32_t index = slot.returned.front();
  slot.returned.pop_front();
  return index;
}

void Slots::give_back(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.number != number >> slot::index_bits) continue;
    --slot.in_use;
    // At the end of the queue, behind all others that rest.
    slot.returned.push_back(static_cast<std::uint16_t>(number % slot::indexes));
  }
}

// Starts anywhere, so that processes that begin together do not try the same ports, and a slot that
// has just become free is not taken at once.
Slots::Slot* Slots::claim() {
  const unsigned start = random_.below(slot::count);
  for (unsigned i = 0; i < slot::count; ++i) {
    const unsigned number = (start + i) % slot::count;
    std::vector<sys::Descriptor> sockets;
    int failed = slot::listen_at(number, device_.addresses(), sockets);
    // Another process has this slot. Every other error would come for the next one as well.
    if (failed == EADDRINUSE) continue;
    Slot slot{
        .number = number, .listeners = {}, .order = std::vector<std::uint16_t>(usable_indexes)};
    std::iota(slot.order.begin(), slot.order.end(), std::uint16_t{slot::first_index});
    if (failed == 0) failed = listen(slot, std::move(sockets));
    if (failed != 0) {
      errno = failed;
      return nullptr;
    }
    slots_.push_back(std::move(slot));
    return &slots_.back();
  }
  log_format(LogLevel::warning, "weft0",
             "TCP ports %d to %d of this machine are all taken: no process more "
             "can have queue pairs here",
             slot::first_port, slot::first_port + slot::count - 1);
  errno = ENOMEM;
  return nullptr;
}

int Slots::listen(Slot& slot, std::vector<sys::Descriptor> sockets) {
  for (auto& socket : sockets) {
    Listener::Plan plan;
    plan.socket = std::move(socket);
    plan.handshake_timeout_ns = limits::handshake_ns;
    plan.requested = requested_;
    slot.listeners.push_back(std::make_shared<Listener>(device_, std::move(plan)));
    const int failed = slot.listeners.back()->start();
    if (failed == 0) continue;
    // All addresses or none: a slot that answers at only some of them would hide its queue pairs
    // from peers.
    for (const auto& listener : slot.listeners) listener->stop();
    return failed;
  }
  return 0;
}

namespace {

// Both steps may find the port taken: with SO_REUSEADDR, which ignores connections of a process
// that has ended, two processes can be bound to it until one listens.
int listen_on(const sockaddr_storage& address, sys::Descriptor& socket) {
  sys::Descriptor made(
      sys::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.valid()) return -made.release();
  sys::set_option(made.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // IPv4 has sockets of its own.
  if (address.ss_family == AF_INET6) sys::set_option(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  int failed =
      -sys::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), length_of(address));
  if (failed == 0) failed = -sys::listen(made.get(), SOMAXCONN);
  if (failed == 0) socket = std::move(made);
  return failed;
}

}  // namespace

std::vector<sockaddr_storage> slot::listening_addresses(
    const std::vector<LocalAddress>& addresses) {
  std::vector<sockaddr_storage> wanted;
  // Loopback first: all processes of this host have it in common, so a slot has one owner even if
  // their other addresses differ.
  for (const char* loopback : {"127.0.0.1", "::1"}) {
    sockaddr_storage address{};
    if (parse_address(loopback, address)) wanted.push_back(address);
  }
  for (const LocalAddress& local : addresses) {
    const bool known = std::ranges::any_of(wanted, [&local](const sockaddr_storage& address) {
      return same_host_address(address, local.address);
    });
    if (!known) wanted.push_back(local.address);
  }
  return wanted;
}

bool slot::is_missing_address(int error) {
  return error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

int slot::listen_at(unsigned number, const std::vector<LocalAddress>& addresses,
                    std::vector<sys::Descriptor>& sockets) {
  int failed = EADDRNOTAVAIL;
  for (sockaddr_storage& address : listening_addresses(addresses)) {
    set_port(address, static_cast<std::uint16_t>(slot::first_port + number));
    sys::Descriptor socket;
    const int reason = listen_on(address, socket);
    if (reason == 0) {
      sockets.push_back(std::move(socket));
      continue;
    }
    failed = reason;
    // One address that is taken makes the slot another process's; one that does not exist is left
    // out.
    if (!is_missing_address(reason)) return reason;
  }
  return sockets.empty() ? failed : 0;
}

// The child keeps no slot: its numbers would name queue pairs of the parent.
void Slots::abandon_after_fork() {
  walk_after_fork(mutex_, [this] {
    for (const Slot& slot : slots_) {
      for (const auto& listener : slot.listeners) listener->abandon_after_fork();
    }
  });
}

}  // namespace weft::device
