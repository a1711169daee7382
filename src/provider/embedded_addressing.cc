// Address handles and multicast: what unreliable datagrams need. An iWARP device has none of it.
#include "provider/embedded_parts.h"
#include "provider/guard.h"

namespace weft::provider {
namespace {

ibv_ah* create_ah(ibv_pd* /*pd*/, ibv_ah_attr* /*attributes*/) {
  return fail_null(EOPNOTSUPP);
}

ibv_ah* create_ah_from_wc(ibv_pd* /*pd*/, ibv_wc* /*completion*/, ibv_grh* /*grh*/,
                          std::uint8_t /*port*/) {
  return fail_null(EOPNOTSUPP);
}

int init_ah_from_wc(ibv_context* /*context*/, std::uint8_t /*port*/, ibv_wc* /*completion*/,
                    ibv_grh* /*grh*/, ibv_ah_attr* /*attributes*/) {
  return fail<Failure::minus_one, int>(EOPNOTSUPP);
}

int destroy_ah(ibv_ah* /*ah*/) {
  return EINVAL;
}  // nobody can have one

int change_mcast(ibv_qp* /*qp*/, const ibv_gid* /*gid*/, std::uint16_t /*lid*/) {
  return EOPNOTSUPP;
}

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
  table.attach_mcast = verbs_call<change_mcast>;
  table.detach_mcast = verbs_call<change_mcast>;
  table.resolve_eth_l2_from_gid = verbs_call<resolve_eth_l2_from_gid>;
}

}  // namespace weft::provider
