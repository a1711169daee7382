// Declarations that librdmacm's header has since rdma-core 60, for builds against an older one.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <cstring>

namespace weft::cm::newer {

inline constexpr int rai_dns = 0x20;
inline constexpr int rai_sa = 0x10;

// These are outside the range of the older enumeration, so they never have its type here.
inline constexpr int event_addrinfo_resolved = 16;
inline constexpr int event_addrinfo_error = 17;
inline constexpr int event_user = 18;

inline void set_type(rdma_cm_event& event, int type) {
  static_assert(sizeof event.event == sizeof type);
  std::memcpy(&event.event, &type, sizeof type);
}

inline int type_of(const rdma_cm_event& event) {
  int type;
  std::memcpy(&type, &event.event, sizeof type);
  return type;
}

// rdma_cm_event::param.arg, which is a member of the union with the other parameters.
inline void set_argument(rdma_cm_event& event, std::uint64_t argument) {
  std::memcpy(&event.param, &argument, sizeof argument);
}

inline std::uint64_t argument_of(const rdma_cm_event& event) {
  std::uint64_t argument;
  std::memcpy(&argument, &event.param, sizeof argument);
  return argument;
}

}  // namespace weft::cm::newer
