#include "provider/names.h"

#include <array>
#include <cstddef>

namespace weft::provider {
namespace {

// The tables are indexed by the values of the enumerations, which are part of the ABI.
// A value that a newer version of the enumeration has must not be read beyond the table.
template <std::size_t count>
const char* pick(const std::array<const char*, count>& names, int value) {
  if (value < 0 || static_cast<std::size_t>(value) >= count) return "unknown";
  return names[static_cast<std::size_t>(value)];
}

constexpr std::array node_types{"unknown",           "InfiniBand channel adapter",
                                "InfiniBand switch", "InfiniBand router",
                                "iWARP NIC",         "usNIC",
                                "usNIC UDP",         "unspecified"};

constexpr std::array port_states{"no state change (NOP)", "down", "init", "armed", "active",
                                 "active defer"};

constexpr std::array event_types{"CQ error",
                                 "local work queue catastrophic error",
                                 "invalid request local work queue error",
                                 "local access violation work queue error",
                                 "communication established",
                                 "send queue drained",
                                 "path migrated",
                                 "path migration request error",
                                 "local catastrophic error",
                                 "port active",
                                 "port error",
                                 "LID change",
                                 "P_Key change",
                                 "SM change",
                                 "SRQ catastrophic error",
                                 "SRQ limit reached",
                                 "last WQE reached",
                                 "client reregistration",
                                 "GID table change",
                                 "WQ fatal"};

// Spelled as ibv_wc_status_str(3) of rdma-core has them, including the capitals.
constexpr std::array statuses{"success",
                              "local length error",
                              "local QP operation error",
                              "local EE context operation error",
                              "local protection error",
                              "Work Request Flushed Error",
                              "memory management operation error",
                              "bad response error",
                              "local access error",
                              "remote invalid request error",
                              "remote access error",
                              "remote operation error",
                              "transport retry counter exceeded",
                              "RNR retry counter exceeded",
                              "local RDD violation error",
                              "remote invalid RD request",
                              "aborted error",
                              "invalid EE context number",
                              "invalid EE context state",
                              "fatal error",
                              "response timeout error",
                              "general error",
                              "TM error",
                              "TM software rendezvous"};

}  // namespace

const char* name_of(ibv_node_type type) {
  return pick(node_types, type);
}

const char* name_of(ibv_port_state state) {
  return pick(port_states, state);
}

const char* name_of(ibv_event_type event) {
  return pick(event_types, event);
}

const char* name_of(ibv_wc_status status) {
  return pick(statuses, status);
}

}  // namespace weft::provider
