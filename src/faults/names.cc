#include "faults/names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>

namespace weft::faults {
namespace {

constexpr std::array points{
    PointName{"post-send", Point::post_send, ActionKind::call_error,
              "ibv_post_send and ibv_wr_complete: the call, before anything is posted"},
    PointName{"post-recv", Point::post_receive, ActionKind::call_error,
              "ibv_post_recv and ibv_post_srq_recv"},
    PointName{"open-device", Point::open_device, ActionKind::call_error, "ibv_open_device"},
    PointName{"alloc-pd", Point::allocate_domain, ActionKind::call_error, "ibv_alloc_pd"},
    PointName{"reg-mr", Point::register_memory, ActionKind::call_error,
              "ibv_reg_mr and its variants, ibv_rereg_mr, ibv_reg_dm_mr and ibv_alloc_null_mr"},
    PointName{"alloc-mw", Point::allocate_window, ActionKind::call_error, "ibv_alloc_mw"},
    PointName{"create-comp-channel", Point::create_channel, ActionKind::call_error,
              "ibv_create_comp_channel"},
    PointName{"create-cq", Point::create_completion_queue, ActionKind::call_error, "ibv_create_cq"},
    PointName{"create-srq", Point::create_shared_receive_queue, ActionKind::call_error,
              "ibv_create_srq"},
    PointName{"create-qp", Point::create_queue_pair, ActionKind::call_error,
              "ibv_create_qp and rdma_create_qp"},
    PointName{"create-ah", Point::create_address_handle, ActionKind::call_error, "ibv_create_ah"},
    PointName{"modify-qp", Point::modify_queue_pair, ActionKind::call_error, "ibv_modify_qp"},
    PointName{"send", Point::send, ActionKind::request_status, "a posted Send, of any kind"},
    PointName{"write", Point::write, ActionKind::request_status,
              "a posted RDMA Write, of any kind"},
    PointName{"read", Point::read, ActionKind::request_status, "a posted RDMA Read"},
    PointName{"atomic", Point::atomic, ActionKind::request_status,
              "a posted compare-and-swap, fetch-and-add or atomic Write"},
    PointName{"request", Point::request, ActionKind::request_status, "any of these four"},
    PointName{
        "recv", Point::receive, ActionKind::request_status,
        "a receive posted to a queue pair (not to a shared receive queue); it fails when a message "
        "arrives for it"},
    PointName{"resolve-addr", Point::resolve_address, ActionKind::failure, "rdma_resolve_addr"},
    PointName{"resolve-route", Point::resolve_route, ActionKind::failure, "rdma_resolve_route"},
    PointName{"connect", Point::connect, ActionKind::failure,
              "rdma_connect, for RDMA_PS_TCP and RDMA_PS_IB"},
    PointName{"connect-request", Point::connect_request, ActionKind::failure,
              "a request that arrives at a listener of rdma_cm, before the program sees it"},
    PointName{"pair", Point::pair, ActionKind::failure,
              "the step to RTR of a queue pair that finds its peer by number, without rdma_cm"},
    PointName{"connection", Point::connection, ActionKind::failure,
              "a connection of a queue pair (RC, UC) when it begins; after= says when in its life "
              "something happens"},
    PointName{"disconnect", Point::disconnect, ActionKind::failure,
              "the event RDMA_CM_EVENT_DISCONNECTED of rdma_cm"},
    PointName{"arrival", Point::arrival, ActionKind::failure,
              "a Send or a Write with immediate that arrives at a connected queue pair and needs a "
              "receive"},
    PointName{"completion", Point::completion, ActionKind::failure,
              "a completion, of a request or a receive, before the program can poll it"},
    PointName{"device", Point::device, ActionKind::device_event,
              "an asynchronous event, once; after=DURATION says when"},
};

constexpr std::array conditions{
    ConditionName{"nth=N", "Only the Nth one that meets the other conditions, from 1."},
    ConditionName{"every=N", "Each Nth one."},
    ConditionName{"p=P", "Each one with this probability, above 0 and at most 1."},
    ConditionName{"times=N", "At most so many faults of this rule."},
    ConditionName{
        "after=DURATION",
        "From this time on after the device was opened (at connection: after it began), in "
        "ns, us, ms or s, such as 500ms."},
    ConditionName{
        "after=AMOUNT",
        "When requests of this kind have carried more than this many "
        "bytes, in B, KiB, MiB or GiB. At connection: when TCP has carried this many, in both "
        "directions together."},
    ConditionName{"qp=NUMBER",
                  "Only on this queue pair, decimal or from 0x. Requests, posts, "
                  "ibv_modify_qp, pair, connection, arrival and completion only."},
    ConditionName{"peer=ADDRESS",
                  "Only towards this numeric IP address. Requests, connections, arrivals and "
                  "completions only. A receive that is posted before its queue pair is connected "
                  "has no peer, and no side."},
    ConditionName{"side=SIDE",
                  "Only at the active side of a connection of rdma_cm, which calls rdma_connect, "
                  "or only at the passive side, which accepts. Queue pairs that find each other "
                  "by number have no sides. Steps of rdma_cm, requests, connections, arrivals and "
                  "completions only."},
    ConditionName{"process=NAME", "Only in programs of this name."},
};

constexpr std::array errors{
    ValueName{"EPERM", EPERM},
    ValueName{"EIO", EIO},
    ValueName{"EAGAIN", EAGAIN},
    ValueName{"ENOMEM", ENOMEM},
    ValueName{"EACCES", EACCES},
    ValueName{"EFAULT", EFAULT},
    ValueName{"EBUSY", EBUSY},
    ValueName{"ENODEV", ENODEV},
    ValueName{"EINVAL", EINVAL},
    ValueName{"EMFILE", EMFILE},
    ValueName{"ENOSPC", ENOSPC},
    ValueName{"ENOSYS", ENOSYS},
    ValueName{"EOPNOTSUPP", EOPNOTSUPP},
    ValueName{"EADDRINUSE", EADDRINUSE},
    ValueName{"EADDRNOTAVAIL", EADDRNOTAVAIL},
    ValueName{"ECONNREFUSED", ECONNREFUSED},
    ValueName{"ECONNRESET", ECONNRESET},
    ValueName{"EHOSTUNREACH", EHOSTUNREACH},
    ValueName{"ENETUNREACH", ENETUNREACH},
    ValueName{"ETIMEDOUT", ETIMEDOUT},
};

// All but success; see <infiniband/verbs.h>. Some of them no adapter of today reports.
constexpr std::array statuses{
    ValueName{"LOC_LEN_ERR", 1},         ValueName{"LOC_QP_OP_ERR", 2},
    ValueName{"LOC_EEC_OP_ERR", 3},      ValueName{"LOC_PROT_ERR", 4},
    ValueName{"WR_FLUSH_ERR", 5},        ValueName{"MW_BIND_ERR", 6},
    ValueName{"BAD_RESP_ERR", 7},        ValueName{"LOC_ACCESS_ERR", 8},
    ValueName{"REM_INV_REQ_ERR", 9},     ValueName{"REM_ACCESS_ERR", 10},
    ValueName{"REM_OP_ERR", 11},         ValueName{"RETRY_EXC_ERR", 12},
    ValueName{"RNR_RETRY_EXC_ERR", 13},  ValueName{"LOC_RDD_VIOL_ERR", 14},
    ValueName{"REM_INV_RD_REQ_ERR", 15}, ValueName{"REM_ABORT_ERR", 16},
    ValueName{"INV_EECN_ERR", 17},       ValueName{"INV_EEC_STATE_ERR", 18},
    ValueName{"FATAL_ERR", 19},          ValueName{"RESP_TIMEOUT_ERR", 20},
    ValueName{"GENERAL_ERR", 21},        ValueName{"TM_ERR", 22},
    ValueName{"TM_RNDV_INCOMPLETE", 23},
};

// Those of the device and its port.
constexpr std::array events{
    ValueName{"DEVICE_FATAL", 8},       ValueName{"PORT_ACTIVE", 9},  ValueName{"PORT_ERR", 10},
    ValueName{"LID_CHANGE", 11},        ValueName{"PKEY_CHANGE", 12}, ValueName{"SM_CHANGE", 13},
    ValueName{"CLIENT_REREGISTER", 17}, ValueName{"GID_CHANGE", 18},
};

// Rules may name a status or an event as the header does, with the prefix, or without it.
std::string_view prefix_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::request_status:
      return "IBV_WC_";
    case ActionKind::device_event:
      return "IBV_EVENT_";
    case ActionKind::call_error:
    case ActionKind::failure:
      break;
  }
  return "";
}

}  // namespace

// toupper(3) is defined for EOF and the values of unsigned char only, hence the type of the
// parameters.
bool same_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

std::span<const PointName> point_names() {
  return points;
}

const PointName* find_point(std::string_view name) {
  const auto found = std::ranges::find(points, name, &PointName::name);
  return found == points.end() ? nullptr : &*found;
}

std::string_view name_of(Point point) {
  return std::ranges::find(points, point, &PointName::point)->name;
}

std::span<const ConditionName> condition_names() {
  return conditions;
}

std::span<const ValueName> value_names(ActionKind kind) {
  switch (kind) {
    case ActionKind::call_error:
      return errors;
    case ActionKind::request_status:
      return statuses;
    case ActionKind::device_event:
      return events;
    case ActionKind::failure:
      break;
  }
  return {};
}

std::optional<int> find_value(ActionKind kind, std::string_view name) {
  const std::string_view prefix = prefix_of(kind);
  if (name.size() > prefix.size() && same_letters(name.substr(0, prefix.size()), prefix)) {
    name.remove_prefix(prefix.size());
  }
  for (const ValueName& value : value_names(kind)) {
    if (same_letters(value.name, name)) return value.value;
  }
  return std::nullopt;
}

std::string_view name_of(const Action& action) {
  for (const ValueName& value : value_names(action.kind)) {
    if (value.value == action.value) return value.name;
  }
  return "?";
}

}  // namespace weft::faults
