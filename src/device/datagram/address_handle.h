// Address handles, the destinations of unreliable datagrams: ibv_create_ah(3),
// ibv_init_ah_from_wc(3).
#pragma once

#include <infiniband/verbs.h>

#include "base/kept_memory.h"
#include "device/adapter.h"
#include "device/context.h"
#include "device/datagram/datagram_packet.h"

namespace weft::device {

// An address handle. Immutable, and therefore thread-safe; counts as a user of its protection
// domain.
class AddressHandle : public KeptMemory {
 public:
  // Creates a handle. Null with errno set: EINVAL for an invalid address, EOPNOTSUPP in the iWARP
  // personality, which has no datagrams.
  [[nodiscard]] static AddressHandle* create(ProtectionDomain& domain,
                                             const ibv_ah_attr& attributes);
  ~AddressHandle();
  AddressHandle(const AddressHandle&) = delete;
  AddressHandle& operator=(const AddressHandle&) = delete;

  [[nodiscard]] ibv_ah* verbs() { return &handle_; }
  [[nodiscard]] static AddressHandle* of(ibv_ah* ah) {
    return reinterpret_cast<AddressHandle*>(ah);
  }

  // The route of packets to a queue pair, with the destination's port and without the source's.
  [[nodiscard]] DatagramRoute route_to(std::uint32_t number) const;
  [[nodiscard]] bool is_group() const { return group_; }
  // The interface of the source address.
  [[nodiscard]] unsigned interface_index() const { return interface_index_; }

 private:
  explicit AddressHandle(ProtectionDomain& domain) : domain_(domain) { ++domain.users; }

  ibv_ah handle_{};  // first: see of()
  ProtectionDomain& domain_;
  Counted counted_;
  DatagramRoute route_;
  unsigned interface_index_ = 0;
  bool group_ = false;
};

// The LID of a received datagram's sender; 0 in the personalities without LIDs.
[[nodiscard]] std::uint16_t lid_of_sender(const Device& device, Bytes grh);

// Fills in the address of a received datagram's sender. 0 or an errno.
int address_of_sender(Context& context, std::uint8_t port, const ibv_wc& completion,
                      const ibv_grh* grh, ibv_ah_attr& attributes);

}  // namespace weft::device
