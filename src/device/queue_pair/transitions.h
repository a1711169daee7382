// The states of a queue pair: which changes ibv_modify_qp(3) allows, and with which attributes. The
// device enforces the table; the C++ library explains refusals with it. Header only, so that layers
// which do not link the device can use it.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <span>

namespace weft::device {

// A step from one state to another, and the attributes (ibv_qp_attr_mask) that must and may come
// with it. IBV_QP_STATE and IBV_QP_CUR_STATE are always allowed.
struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

namespace transitions {

// The tables of ibv_modify_qp(3), and of "Modify Queue Pair" in the InfiniBand Architecture
// Specification, volume 1.
inline constexpr std::array reliable{
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
               0},
    Transition{IBV_QPS_INIT, IBV_QPS_INIT, 0,
               IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR,
               IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
               IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS,
               IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                   IBV_QP_MAX_QP_RD_ATOMIC,
               IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
                   IBV_QP_PATH_MIG_STATE},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, 0,
               IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
                   IBV_QP_MIN_RNR_TIMER},
    Transition{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, 0,
               IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
                   IBV_QP_PATH_MIG_STATE},
    Transition{IBV_QPS_SQD, IBV_QPS_SQD, 0,
               IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                   IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |
                   IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER |
                   IBV_QP_PATH_MIG_STATE},
};

inline constexpr std::array unreliable{
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
               0},
    Transition{IBV_QPS_INIT, IBV_QPS_INIT, 0,
               IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR,
               IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
               IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN,
               IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, 0,
               IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE},
    Transition{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, 0,
               IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE},
    Transition{IBV_QPS_SQD, IBV_QPS_SQD, 0,
               IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
                   IBV_QP_PATH_MIG_STATE},
};

inline constexpr std::array datagram{
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    Transition{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    Transition{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    Transition{IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    Transition{IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
};

// The same tables for extended connections. The end that sends needs no attributes of the receiving
// end, and the other way round. On the way to RTS it may have them all the same, and they have no
// effect: perftest gives both ends those of a reliable connection.
inline constexpr int extended_path = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;

inline constexpr std::array extended_sender{
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
               0},
    Transition{IBV_QPS_INIT, IBV_QPS_INIT, 0,
               IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR,
               IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH |
                   IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS,
               IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                   IBV_QP_MAX_QP_RD_ATOMIC,
               IBV_QP_CUR_STATE | IBV_QP_MIN_RNR_TIMER | extended_path},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | extended_path},
    Transition{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | extended_path},
    Transition{IBV_QPS_SQD, IBV_QPS_SQD, 0,
               IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                   IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_PKEY_INDEX | extended_path},
};

inline constexpr std::array extended_receiver{
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
               0},
    Transition{IBV_QPS_INIT, IBV_QPS_INIT, 0,
               IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR,
               IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
               IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
               IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_CUR_STATE |
                   IBV_QP_MIN_RNR_TIMER | extended_path},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, 0,
               IBV_QP_CUR_STATE | IBV_QP_MIN_RNR_TIMER | extended_path},
    Transition{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, 0,
               IBV_QP_CUR_STATE | IBV_QP_MIN_RNR_TIMER | extended_path},
    Transition{IBV_QPS_SQD, IBV_QPS_SQD, 0,
               IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC |
                   IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | extended_path},
};

}  // namespace transitions

[[nodiscard]] constexpr std::span<const Transition> transitions_of(ibv_qp_type type) {
  if (type == IBV_QPT_UD) return transitions::datagram;
  if (type == IBV_QPT_UC) return transitions::unreliable;
  if (type == IBV_QPT_XRC_SEND) return transitions::extended_sender;
  if (type == IBV_QPT_XRC_RECV) return transitions::extended_receiver;
  return transitions::reliable;
}

// Returns 0, or EINVAL. `current` is the state now, `mask` an ibv_qp_attr_mask that holds
// IBV_QP_STATE. `complete`: the attributes that InfiniBand requires must be there. An iWARP device
// takes its own from the connection and requires none.
[[nodiscard]] constexpr int check_transition(ibv_qp_type type, ibv_qp_state current,
                                             ibv_qp_state next, int mask, bool complete) {
  const int given = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
  // Linux refuses this one for InfiniBand and RoCE.
  if (complete && current == IBV_QPS_RESET && next == IBV_QPS_ERR) return EINVAL;
  // Every other state may be left for these two, and no other attribute may come with that.
  if (next == IBV_QPS_RESET || next == IBV_QPS_ERR) return given == 0 ? 0 : EINVAL;
  for (const auto& transition : transitions_of(type)) {
    if (transition.from != current || transition.to != next) continue;
    if ((given & ~(transition.required | transition.optional)) != 0) return EINVAL;
    if (complete && (given & transition.required) != transition.required) return EINVAL;
    return 0;
  }
  return EINVAL;
}

}  // namespace weft::device
