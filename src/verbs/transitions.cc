#include "verbs/transitions.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "provider/transitions.h"
#include "verbs/waiting.h"
#include "weft/verbs/gid.hpp"

namespace weft::verbs::detail {
namespace {

using provider::Transition;

// Never reported as attributes that do not belong there.
constexpr int anywhere = IBV_QP_STATE | IBV_QP_CUR_STATE;

// Returns the names of the attribute bits as in the man page, without the prefix IBV_QP_.
std::string names(int mask) {
  struct Name {
    int bit;
    std::string_view name;
  };
  static constexpr std::array all{
      Name{IBV_QP_STATE, "STATE"},
      Name{IBV_QP_CUR_STATE, "CUR_STATE"},
      Name{IBV_QP_EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY"},
      Name{IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS"},
      Name{IBV_QP_PKEY_INDEX, "PKEY_INDEX"},
      Name{IBV_QP_PORT, "PORT"},
      Name{IBV_QP_QKEY, "QKEY"},
      Name{IBV_QP_AV, "AV"},
      Name{IBV_QP_PATH_MTU, "PATH_MTU"},
      Name{IBV_QP_TIMEOUT, "TIMEOUT"},
      Name{IBV_QP_RETRY_CNT, "RETRY_CNT"},
      Name{IBV_QP_RNR_RETRY, "RNR_RETRY"},
      Name{IBV_QP_RQ_PSN, "RQ_PSN"},
      Name{IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC"},
      Name{IBV_QP_ALT_PATH, "ALT_PATH"},
      Name{IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER"},
      Name{IBV_QP_SQ_PSN, "SQ_PSN"},
      Name{IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"},
      Name{IBV_QP_PATH_MIG_STATE, "PATH_MIG_STATE"},
      Name{IBV_QP_CAP, "CAP"},
      Name{IBV_QP_DEST_QPN, "DEST_QPN"},
  };
  std::string list;
  for (const auto& [bit, name] : all) {
    if (mask & bit) list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  }
  return list;
}

}  // namespace

// Any state can change to RESET or ERR, with no attributes; the provider's table lists the other
// transitions only.
std::string explain_refusal(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
    const int other = mask & ~anywhere;
    return other ? fmt::format("attributes that do not belong there: {}", names(other)) : "";
  }
  for (const Transition& transition : provider::transitions_of(type)) {
    if (transition.from != from || transition.to != to) continue;
    const int missing = transition.required & ~mask;
    const int not_allowed = mask & ~(transition.required | transition.optional | anywhere);
    std::string text;
    if (missing) text = "attributes that are missing: " + names(missing);
    if (not_allowed) {
      text += (text.empty() ? "" : "; ") + std::string("attributes that do not belong there: ") +
              names(not_allowed);
    }
    return text;
  }
  return fmt::format("there is no transition from {} to {}", state_name(from), state_name(to));
}

std::string wrong_attributes(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return names(mask & ~anywhere);
  for (const Transition& transition : provider::transitions_of(type)) {
    if (transition.from != from || transition.to != to) continue;
    return names((transition.required & ~mask) |
                 (mask & ~(transition.required | transition.optional | anywhere)));
  }
  return {};
}

std::string explain_route(int error, const ibv_ah_attr& to) {
  // The kernel resolves the peer's address in the modification that sets IBV_QP_AV; these are the
  // errors of that. EINVAL: the row has an address of another kind, such as IPv6 for a peer of
  // IPv4.
  const bool unreachable =
      error == EINVAL || error == ETIMEDOUT || error == ENETUNREACH || error == EHOSTUNREACH;
  if (!unreachable || !to.is_global) return {};
  return fmt::format(
      "over RoCE the peer, {}, must be reachable from row {} of our GID table, by UDP port 4791; "
      "best_gid() returns the right row",
      Gid(to.grh.dgid).to_string(), to.grh.sgid_index);
}

}  // namespace weft::verbs::detail
