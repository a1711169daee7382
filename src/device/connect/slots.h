// Queue pair numbers that contain the port of their owner: ten bits name a slot, which is a TCP
// port of the owner's host, and fourteen bits a queue pair of the process that holds the slot. So
// an address and a number are enough to find a queue pair, with no daemon and no shared state.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/kernel_random.h"
#include "device/addresses.h"
#include "device/connect/inbound_handshake.h"
#include "device/connect/listener.h"

namespace weft::device {

namespace slot {

inline constexpr unsigned count = 1U << 10;
inline constexpr unsigned index_bits = 14;
inline constexpr std::uint32_t indexes = 1U << index_bits;
// Below Linux's ephemeral ports, and the same on every host.
inline constexpr std::uint16_t first_port = 28672;

// The port behind a queue pair number of 24 bits.
[[nodiscard]] constexpr std::uint16_t port_of(std::uint32_t number) {
  return static_cast<std::uint16_t>(first_port + (number >> index_bits));
}

// No queue pair has index 0, so that number 0 stays free, and so does this one: where a program
// walks a queue pair of its own through the states, it stands for "the stream of rdma_cm".
inline constexpr std::uint32_t stream_of_cm = (count - 1) << index_bits;
// Numbers 1 and 0xFFFFFF mean something else on InfiniBand.
inline constexpr std::uint32_t first_index = 2;
inline constexpr std::uint32_t last_index = indexes - 2;

// The addresses at which the ports of slots are open: loopback's, then `addresses`. A queue pair is
// reached by its GID, and other networks of this host have no business with it. All have port 0.
[[nodiscard]] std::vector<sockaddr_storage> listening_addresses(
    const std::vector<LocalAddress>& addresses);
// Whether an errno of bind(2) means that the host has no such address: no IPv6, no loopback, or an
// address that was taken away since the device was made.
[[nodiscard]] bool is_missing_address(int error);

// Opens the TCP port of a slot at listening_addresses(). 0 or an errno value: EADDRINUSE if any of
// them is taken.
int listen_at(unsigned number, const std::vector<LocalAddress>& addresses,
              std::vector<sys::Descriptor>& sockets);

}  // namespace slot

// The slots of this process. A first one is claimed when a number is wanted, more of them when its
// indexes run out. The system gives a slot back when the process ends, however it ends.
class Slots {
 public:
  using Requested = std::function<void(const std::shared_ptr<InboundHandshake>&)>;

  // `requested`: an MPA request has arrived at one of the slots; called without any lock.
  Slots(Device& device, Requested requested) : device_(device), requested_(std::move(requested)) {}

  // 0 with errno set: ENOMEM where all slots of this host are taken, or what the system said.
  [[nodiscard]] std::uint32_t take_number();
  // An index comes back only after all others of its slot: a late reference to an old queue pair
  // does not hit a new one.
  void give_back(std::uint32_t number);

  void abandon_after_fork();

 private:
  struct Slot {
    unsigned number = 0;
    std::vector<std::shared_ptr<Listener>> listeners;  // one for each address
    // All indexes of the slot. Those from `drawn` on have never been given out: the next one is
    // drawn from them at random, so that one number gives no hint of another.
    std::vector<std::uint16_t> order;
    std::size_t drawn = 0;
    std::deque<std::uint16_t> returned{};  // given back, oldest first
    std::uint32_t in_use = 0;
  };

  [[nodiscard]] std::uint32_t take_index(Slot& slot);
  [[nodiscard]] Slot* claim();
  [[nodiscard]] int listen(Slot& slot, std::vector<sys::Descriptor> sockets);

  Device& device_;
  Requested requested_;
  std::mutex mutex_;
  std::vector<Slot> slots_;
  KernelRandom random_;  // under the lock
};

}  // namespace weft::device
