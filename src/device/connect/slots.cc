#include "device/connect/slots.h"

#include <netinet/in.h>

#include <cerrno>
#include <cstdio>
#include <numeric>
#include <utility>

#include "device/addresses.h"
#include "device/limits.h"

namespace weft::device {
namespace {

// So many indexes of a slot stay unused that each rests for a while before it is given out again.
constexpr std::uint32_t resting_indexes = 1024;
constexpr std::uint32_t usable_indexes = slot::last_index - slot::first_index + 1;

sockaddr_storage any_address(int family, std::uint16_t port) {
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  set_port(address, port);
  return address;
}

}  // namespace

std::uint32_t Slots::take_number() {
  const std::lock_guard lock(mutex_);
  Slot* found = nullptr;
  for (Slot& slot : slots_) {
    if (slot.in_use < usable_indexes - resting_indexes) found = &slot;
  }
  if (!found) found = claim();
  return found ? found->number << slot::index_bits | take_index(*found) : 0;
}

std::uint32_t Slots::take_index(Slot& slot) {
  ++slot.in_use;
  if (slot.drawn < slot.order.size()) {
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
    slot.returned.push_back(static_cast<std::uint16_t>(number % slot::indexes));
  }
}

// Starts anywhere, so that processes that begin together do not try the same ports, and a slot that
// has just become free is not taken at once.
Slots::Slot* Slots::claim() {
  const unsigned start = random_.below(slot::count);
  for (unsigned i = 0; i < slot::count; ++i) {
    const unsigned number = (start + i) % slot::count;
    sys::Descriptor socket;
    const int failed = slot::listen_at(number, socket);
    if (failed == EADDRINUSE) continue;
    Listener::Plan plan;
    plan.socket = std::move(socket);
    plan.handshake_timeout_ns = limits::handshake_ns;
    plan.requested = requested_;
    auto listener = std::make_shared<Listener>(device_, std::move(plan));
    const int reason = failed != 0 ? failed : listener->start();
    if (reason != 0) {
      errno = reason;
      return nullptr;
    }
    std::vector<std::uint16_t> order(usable_indexes);
    std::iota(order.begin(), order.end(), std::uint16_t{slot::first_index});
    slots_.push_back(
        {.number = number, .listener = std::move(listener), .order = std::move(order)});
    return &slots_.back();
  }
  std::fprintf(stderr,
               "weft: TCP ports %d to %d of this machine are all taken: no process more "
               "can have queue pairs here\n",
               slot::first_port, slot::first_port + slot::count - 1);
  errno = ENOMEM;
  return nullptr;
}

// Both steps may find the port taken: with SO_REUSEADDR, which gets past connections of a process
// that is gone, two processes can be bound to it until one listens.
int slot::listen_at(unsigned number, sys::Descriptor& socket) {
  const auto port = static_cast<std::uint16_t>(slot::first_port + number);
  int failed = EAFNOSUPPORT;
  for (const int family : {AF_INET6, AF_INET}) {
    sys::Descriptor made(sys::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!made.valid()) {
      failed = -made.release();
      if (failed == EAFNOSUPPORT) continue;
      return failed;
    }
    sys::set_option(made.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (family == AF_INET6) sys::set_option(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    const sockaddr_storage address = any_address(family, port);
    failed =
        -sys::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), length_of(address));
    if (failed == EADDRNOTAVAIL || failed == EAFNOSUPPORT) continue;  // no IPv6 here
    if (failed == 0) failed = -sys::listen(made.get(), SOMAXCONN);
    if (failed == 0) socket = std::move(made);
    return failed;
  }
  return failed;
}

void Slots::abandon_after_fork() {
  for (Slot& slot : slots_) slot.listener->abandon_after_fork();
}

}  // namespace weft::device
