#include "verbs/transitions.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <string_view>

#include "verbs/waiting.h"
#include "weft/verbs/gid.hpp"

namespace weft::verbs::detail {
namespace {

// ibv_modify_qp(3), and the InfiniBand specification's table behind it.
struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int needed;
  int allowed;  // besides
};

constexpr int anywhere = IBV_QP_STATE | IBV_QP_CUR_STATE;
constexpr int address = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int alternate = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
constexpr int retries =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

constexpr std::array reliable{
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
               0},
    Transition{IBV_QPS_INIT, IBV_QPS_INIT, 0,
               IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR,
               address | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
               IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | alternate},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN | retries,
               IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | alternate},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | alternate},
    Transition{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | alternate},
};

constexpr std::array unreliable{
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
               0},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR, address,
               IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | alternate},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_ACCESS_FLAGS | alternate},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS | alternate},
    Transition{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS | alternate},
};

constexpr std::array datagrams{
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_QKEY},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_QKEY},
    Transition{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_QKEY},
};

std::span<const Transition> table_of(ibv_qp_type type) {
  if (type == IBV_QPT_UD) return datagrams;
  if (type == IBV_QPT_UC) return unreliable;
  return reliable;
}

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

std::string explain_refusal(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
    const int other = mask & ~anywhere;
    return other ? fmt::format("attributes that do not belong there: {}", names(other)) : "";
  }
  for (const Transition& transition : table_of(type)) {
    if (transition.from != from || transition.to != to) continue;
    const int missing = transition.needed & ~mask;
    const int strange = mask & ~(transition.needed | transition.allowed | anywhere);
    std::string text;
    if (missing) text = "attributes that are missing: " + names(missing);
    if (strange) {
      text += (text.empty() ? "" : "; ") + std::string("attributes that do not belong there: ") +
              names(strange);
    }
    return text;
  }
  return fmt::format("there is no way from {} to {}", state_name(from), state_name(to));
}

std::string explain_route(int error, const ibv_ah_attr& to) {
  const bool no_way = error == ETIMEDOUT || error == ENETUNREACH || error == EHOSTUNREACH;
  if (!no_way || !to.is_global) return {};
  return fmt::format(
      "over RoCE the peer, {}, must be reachable from row {} of our GID table, by UDP port 4791; "
      "best_gid() says which row is the right one",
      Gid(to.grh.dgid).to_string(), to.grh.sgid_index);
}

}  // namespace weft::verbs::detail
