// Address handles: where unreliable datagrams go. ibv_create_ah(3), ibv_init_ah_from_wc(3).
#pragma once

#include <infiniband/verbs.h>

#include "device/context.h"
#include "device/datagram/datagram_packet.h"

namespace weft::device {

class AddressHandle {
 public:
  // Null with errno set: EINVAL for what is no address, EOPNOTSUPP where the device looks like an
  // iWARP adapter.
  [[nodiscard]] static AddressHandle* create(ProtectionDomain& domain,
                                             const ibv_ah_attr& attributes);
  ~AddressHandle();
  AddressHandle(const AddressHandle&) = delete;
  AddressHandle& operator=(const AddressHandle&) = delete;

  [[nodiscard]] ibv_ah* verbs() { return &handle_; }
  [[nodiscard]] static AddressHandle* of(ibv_ah* ah) {
    return reinterpret_cast<AddressHandle*>(ah);
  }

  // Of packets towards a queue pair; ports included, but for the source's.
  [[nodiscard]] DatagramRoute route_to(std::uint32_t number) const;
  [[nodiscard]] bool is_group() const { return group_; }
  // Of the source address.
  [[nodiscard]] unsigned interface_index() const { return interface_index_; }

 private:
  explicit AddressHandle(ProtectionDomain& domain) : domain_(domain) { ++domain.users; }

  ibv_ah handle_{};  // first: see of()
  ProtectionDomain& domain_;
  DatagramRoute route_;
  unsigned interface_index_ = 0;
  bool group_ = false;
};

// The way back to the sender of a completed receive. 0 or an errno value.
int address_of_sender(Context& context, std::uint8_t port, const ibv_wc& completion,
                      const ibv_grh* grh, ibv_ah_attr& attributes);

}  // namespace weft::device
