// The names of what happens to connections.
#include <algorithm>
#include <array>
#include <cerrno>

#include "faults/names.h"

namespace weft::faults {
namespace {

constexpr std::array at_resolve_address{Point::resolve_address};
constexpr std::array at_resolve_route{Point::resolve_route};
constexpr std::array at_connect{Point::connect};
constexpr std::array at_request{Point::connect_request};
constexpr std::array at_pair{Point::pair};
constexpr std::array at_both_ends{Point::connect, Point::connect_request};
constexpr std::array on_streams{Point::connection, Point::send,   Point::write,
                                Point::read,       Point::atomic, Point::request};
constexpr std::array at_disconnect{Point::disconnect};
constexpr std::array at_requests{Point::send, Point::write, Point::read, Point::atomic,
                                 Point::request};
constexpr std::array at_arrival{Point::arrival};
constexpr std::array at_completion{Point::completion};
constexpr std::array at_delayed{Point::connect, Point::connect_request, Point::pair};

constexpr std::array failures{
    FailureName{"ADDR_ERROR", Failure::address_error, Argument::error, -ETIMEDOUT,
                at_resolve_address,
                "The event RDMA_CM_EVENT_ADDR_ERROR with this error, ETIMEDOUT if there is none."},
    FailureName{"ROUTE_ERROR", Failure::route_error, Argument::error, -ETIMEDOUT, at_resolve_route,
                "The event RDMA_CM_EVENT_ROUTE_ERROR with this error, ETIMEDOUT if there is none."},
    FailureName{"REJECT", Failure::reject, Argument::reason, -ECONNREFUSED, at_connect,
                "The event RDMA_CM_EVENT_REJECTED. Its status is -ECONNREFUSED, as iWARP adapters "
                "have it, or this reason: that of an InfiniBand reject, or an error. The peer sees "
                "nothing."},
    FailureName{"REJECT", Failure::reject, Argument::none, -ECONNREFUSED, at_request,
                "The device rejects the request."},
    FailureName{"UNREACHABLE", Failure::unreachable, Argument::error, -ETIMEDOUT, at_connect,
                "The event RDMA_CM_EVENT_UNREACHABLE with this error, ETIMEDOUT if there is none. "
                "The peer sees nothing."},
    FailureName{"CONNECT_ERROR", Failure::connect_error, Argument::error, -EINVAL, at_connect,
                "The event RDMA_CM_EVENT_CONNECT_ERROR with this error, EINVAL if there is none. "
                "The peer sees nothing."},
    FailureName{"SILENCE", Failure::silence, Argument::none, 0, at_both_ends,
                "The request is never answered, so that the active side reports "
                "RDMA_CM_EVENT_UNREACHABLE when its timeout is over."},
    FailureName{"UNREACHABLE", Failure::unreachable, Argument::none, 0, at_pair,
                "The queue pair finds no peer and refuses the peer that finds it, so that requests "
                "of both end in RETRY_EXC_ERR after their retries."},
    FailureName{"DELAY", Failure::delay, Argument::duration, 0, at_delayed,
                "The connection request leaves, or is reported, later by this time. At pair the "
                "peer gets the answer that the queue pair is not ready yet."},
    FailureName{"FIN", Failure::fin, Argument::none, 0, on_streams,
                "TCP closes the connection, at this byte and in the middle of an FPDU where it is "
                "there. At both ends the connection has ended."},
    FailureName{"RST", Failure::rst, Argument::none, 0, on_streams,
                "The same with a reset of TCP."},
    FailureName{"SILENCE", Failure::silence, Argument::none, 0, on_streams,
                "Nothing is sent and nothing is read any more, while the TCP connection stays. Own "
                "requests end in RETRY_EXC_ERR after the timeout and retries of the queue pair."},
    FailureName{"STALL", Failure::stall, Argument::duration, 0, on_streams,
                "The same, for this time only."},
    FailureName{"TERMINATE", Failure::terminate, Argument::code, 0, on_streams,
                "The device sends a Terminate with this layer, type and code, which ends the "
                "connection, such as TERMINATE:1/2/2."},
    FailureName{"BIT_FLIP", Failure::bit_flip, Argument::none, 0, on_streams,
                "One bit of what is sent next is wrong, so that the peer finds a wrong CRC, unless "
                "CRCs are off."},
    FailureName{
        "QP_FATAL", Failure::queue_pair_fatal, Argument::none, 0, at_requests,
        "The queue pair goes to the error state by itself behind this request, which may be "
        "carried out or flushed, and raises IBV_EVENT_QP_FATAL."},
    FailureName{
        "TIMEWAIT_EXIT", Failure::timewait, Argument::limit, 0, at_disconnect,
        "The event RDMA_CM_EVENT_TIMEWAIT_EXIT behind it, at once or later by this time, as "
        "long as the program has not destroyed the id. InfiniBand and RoCE adapters raise "
        "it when the number of the queue pair may be used again; this device raises it on "
        "demand only."},
    FailureName{
        "RNR", Failure::not_ready, Argument::limit, 0, at_arrival,
        "The receiver is not ready for this time, or for ever, as if no receive was posted. "
        "The message waits, and the sender's request ends in RNR_RETRY_EXC_ERR when its "
        "retries are over. An iWARP device, which has no retries, ends the connection, and "
        "an unreliable queue pair drops the message."},
    FailureName{
        "DELAY", Failure::delay, Argument::duration, 0, at_completion,
        "The completion can be polled later by this time. Those behind it of the same queue "
        "pair wait for it; those of other queue pairs overtake it."},
    FailureName{"OVERRUN", Failure::overrun, Argument::none, 0, at_completion,
                "The completion finds its queue full and is lost: the events IBV_EVENT_CQ_ERR and "
                "IBV_EVENT_QP_FATAL, and the queue pair goes to the error state."},
};

// As in the kernel's <rdma/ib_cm.h>: InfiniBand Architecture Specification, table 106.
constexpr std::array reasons{
    ValueName{"NO_QP", 1},
    ValueName{"NO_RESOURCES", 3},
    ValueName{"TIMEOUT", 4},
    ValueName{"UNSUPPORTED", 5},
    ValueName{"INVALID_SERVICE_ID", 8},
    ValueName{"INVALID_TRANSPORT_TYPE", 9},
    ValueName{"STALE_CONN", 10},
    ValueName{"INVALID_GID", 12},
    ValueName{"INVALID_LID", 13},
    ValueName{"INVALID_MTU", 26},
    ValueName{"INSUFFICIENT_RESP_RESOURCES", 27},
    ValueName{"CONSUMER_DEFINED", 28},
    ValueName{"INVALID_RNR_RETRY", 29},
};

}  // namespace

std::span<const FailureName> failure_names() {
  return failures;
}

std::span<const ValueName> reason_names() {
  return reasons;
}

// One name may stand in several rows, with another argument and effect at each point, so both the
// name and the point have to fit.
const FailureName* find_failure(std::string_view name, Point point) {
  const auto found = std::ranges::find_if(failures, [&](const FailureName& failure) {
    return same_letters(failure.name, name) &&
           std::ranges::find(failure.points, point) != failure.points.end();
  });
  return found == failures.end() ? nullptr : &*found;
}

// Arguments with a standard value are in brackets; read_argument() relies on that.
std::string form_of(const FailureName& failure) {
  std::string form(failure.name);
  switch (failure.argument) {
    case Argument::none:
      break;
    case Argument::error:
      form += "[:ERROR]";
      break;
    case Argument::reason:
      form += "[:REASON]";
      break;
    case Argument::duration:
      form += ":DURATION";
      break;
    case Argument::limit:
      form += "[:DURATION]";
      break;
    case Argument::code:
      form += ":LAYER/TYPE/CODE";
      break;
  }
  return form;
}

}  // namespace weft::faults
