// Address handles and multicast, for unreliable datagrams. The iwarp personality has neither.
#include "device/datagram/address_handle.h"
#include "device/datagram/datagrams.h"
#include "device/queue_pair/queue_pair.h"
#include "provider/embedded_parts.h"
#include "provider/guard.h"
#include "provider/process.h"

namespace weft::provider {
namespace {

using device::AddressHandle;
using device::Context;
using device::ProtectionDomain;
using device::QueuePair;

// AddressHandle::create() sets errno where it returns null.
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  if (!Process::owns(pd->context)) return fail_null(ENODEV);
  if (const int failed =
          Context::of(pd->context)->device().fault_of(faults::Point::create_address_handle)) {
    return fail_null(failed);
  }
  AddressHandle* made = AddressHandle::create(*ProtectionDomain::of(pd), *attributes);
  return made ? made->verbs() : nullptr;
}

// A function of the kind that returns -1 and sets errno, unlike most verbs.
int init_ah_from_wc(ibv_context* verbs, std::uint8_t port, ibv_wc* completion, ibv_grh* grh,
                    ibv_ah_attr* attributes) {
  if (!Process::owns(verbs)) return fail<Failure::minus_one, int>(ENODEV);
  const int failed =
      device::address_of_sender(*Context::of(verbs), port, *completion, grh, *attributes);
  return failed == 0 ? 0 : fail<Failure::minus_one, int>(failed);
}

ibv_ah* create_ah_from_wc(ibv_pd* pd, ibv_wc* completion, ibv_grh* grh, std::uint8_t port) {
  ibv_ah_attr attributes{};
  if (init_ah_from_wc(pd->context, port, completion, grh, &attributes) != 0) return nullptr;
  return create_ah(pd, &attributes);
}

// A handle from before fork(2) is not deleted, because its device is not usable in the child.
int destroy_ah(ibv_ah* ah) {
  if (!Process::owns(ah->context)) return 0;
  delete AddressHandle::of(ah);
  return 0;
}

// Groups are IP groups in all personalities, so the GID suffices and the LID is ignored.
int attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t /*lid*/) {
  if (!Process::owns(qp->context)) return ENODEV;
  if (qp->qp_type != IBV_QPT_UD) return EINVAL;
  auto& datagrams = Context::of(qp->context)->device().datagrams();
  return datagrams.attach(QueuePair::of(qp)->shared_from_this(), *gid);
}

int detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t /*lid*/) {
  if (!Process::owns(qp->context)) return ENODEV;
  if (qp->qp_type != IBV_QPT_UD) return EINVAL;
  auto& datagrams = Context::of(qp->context)->device().datagrams();
  return datagrams.detach(*QueuePair::of(qp), *gid);
}

// The device sends by sockets, so the kernel finds the MAC address and the VLAN of a destination.
int resolve_eth_l2_from_gid(ibv_context* /*context*/, ibv_ah_attr* /*attributes*/,
                            std::uint8_t* /*mac*/, std::uint16_t* /*vlan*/) {
  return EOPNOTSUPP;
}

}  // namespace

void parts::addressing(Table& table) {
  table.create_ah = verbs_call<create_ah>;
  table.create_ah_from_wc = verbs_call<create_ah_from_wc>;
  table.init_ah_from_wc = cm_call<init_ah_from_wc>;
  table.destroy_ah = verbs_call<destroy_ah>;
  table.attach_mcast = verbs_call<attach_mcast>;
  table.detach_mcast = verbs_call<detach_mcast>;
  table.resolve_eth_l2_from_gid = verbs_call<resolve_eth_l2_from_gid>;
}

}  // namespace weft::provider
