#include "weft/verbs/queue_pair.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/caller_explains.h"
#include "verbs/failure.h"
#include "verbs/state.h"
#include "verbs/transitions.h"
#include "verbs/waiting.h"
#include "weft/verbs/context.hpp"

namespace weft::verbs {

QueuePair::QueuePair(std::shared_ptr<detail::QueuePairState> state)
    : state_(std::move(state)), raw_(state_->raw) {}

// Queries the state first, so that the error message can explain the transition that failed.
void QueuePair::modify(const ibv_qp_attr& attributes, int mask) const {
  const ibv_qp_state before = state();
  // The C function takes a pointer that is not const.
  ibv_qp_attr copy = attributes;
  const CallerExplains explains;
  const int failed = detail::table_of(*state_).modify_qp(raw(), &copy, mask);
  if (!failed) return;
  // A modification without IBV_QP_STATE leaves the state as it is.
  const ibv_qp_state wanted = mask & IBV_QP_STATE ? attributes.qp_state : before;
  if (raw()->context->device->transport_type == IBV_TRANSPORT_IWARP &&
      (wanted == IBV_QPS_RTR || wanted == IBV_QPS_RTS)) {
    // The state before is left out: the kernel's siw does not report it.
    detail::fail(failed, fmt::format("cannot take queue pair {:#x} to {}: an iWARP device connects "
                                     "queue pairs by rdma_cm only (weft::verbs::Id, "
                                     "weft::connection)",
                                     number(), detail::state_name(wanted)));
  }
  // EINVAL is explained by the mask; errors of the route concern the address only.
  ErrorDetail detail{.object = fmt::format("queue pair {:#x}", number())};
  std::string why;
  if (failed == EINVAL) {
    why = detail::explain_refusal(raw()->qp_type, before, wanted, mask);
    detail.attribute = detail::wrong_attributes(raw()->qp_type, before, wanted, mask);
  }
  if (why.empty() && (mask & IBV_QP_AV) != 0) {
    why = failed == EINVAL && lacks_gid(attributes.ah_attr)
              ? "the peer's address has no GID, which Ethernet needs: set Endpoint::gid at the peer"
              : detail::explain_route(failed, attributes.ah_attr);
    detail.attribute = "AV";
    if (attributes.ah_attr.is_global) detail.peer = Gid(attributes.ah_attr.grh.dgid).to_string();
  }
  detail::fail(failed,
               fmt::format("cannot take queue pair {:#x} from {} to {}{}{}", number(),
                           detail::state_name(before), detail::state_name(wanted),
                           why.empty() ? "" : ": ", why),
               std::move(detail));
}

// An address vector by LID, which a port on Ethernet cannot use.
bool QueuePair::lacks_gid(const ibv_ah_attr& peer) const {
  if (peer.is_global) return false;
  return context().query_port(std::max<std::uint8_t>(peer.port_num, 1)).is_ethernet();
}

void QueuePair::fail() const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  modify(attributes, IBV_QP_STATE);
}

// The LID of the group is 0: on Ethernet a group has a GID only.
void QueuePair::join_group(const Gid& group) const {
  const ibv_gid gid = group.raw();
  const int failed = detail::table_of(*state_).attach_mcast(raw(), &gid, 0);
  if (failed == 0) return;
  detail::fail(failed, fmt::format("queue pair {:#x} cannot join {}", number(), group.to_string()));
}

void QueuePair::leave_group(const Gid& group) const {
  const ibv_gid gid = group.raw();
  const int failed = detail::table_of(*state_).detach_mcast(raw(), &gid, 0);
  if (failed == 0) return;
  detail::fail(failed,
               fmt::format("queue pair {:#x} cannot leave {}", number(), group.to_string()));
}

QueuePair::Attributes QueuePair::query(int mask) const {
  Attributes found{};
  const int failed =
      detail::table_of(*state_).query_qp(raw(), &found.current, mask, &found.initial);
  if (failed) detail::fail(failed, fmt::format("cannot query queue pair {:#x}", number()));
  return found;
}

Context QueuePair::context() const {
  return Context(state_->domain->context);
}

ibv_qp_state QueuePair::state() const {
  return query(IBV_QP_STATE).current.qp_state;
}

}  // namespace weft::verbs
