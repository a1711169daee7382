// rdma_getaddrinfo(3): calls the system's resolver and converts hints and results.
#include <netdb.h>
#include <netinet/in.h>

#include <cstdlib>
#include <cstring>

#include "base/simulated_kernel.h"
#include "cm/addrinfo.h"
#include "cm/answer.h"
#include "cm/cm.h"
#include "cm/ports.h"
#include "device/addresses.h"

namespace weft::cm {
namespace {

// All types with connections use the addresses of TCP. The value 0 means that the hint does not
// decide.
int socket_type(int qp_type) {
  switch (qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return SOCK_STREAM;
    case IBV_QPT_UD:
      return SOCK_DGRAM;
    default:
      return 0;
  }
}

// RDMA_PS_IB is used with connections and with datagrams, so the type of the queue pair decides.
int protocol(int port_space, int type) {
  switch (port_space) {
    case RDMA_PS_TCP:
      return IPPROTO_TCP;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      return IPPROTO_UDP;
    case RDMA_PS_IB:
      return type == SOCK_DGRAM ? IPPROTO_UDP : IPPROTO_TCP;
    default:
      return 0;
  }
}

addrinfo to_system(const rdma_addrinfo& hints) {
  addrinfo system{};
  if (hints.ai_flags & RAI_PASSIVE) system.ai_flags |= AI_PASSIVE;
  // A simulation has no name server.
  const bool numeric = (hints.ai_flags & RAI_NUMERICHOST) != 0 || SimulatedKernel::current();
  if (numeric) system.ai_flags |= AI_NUMERICHOST;
  system.ai_family = hints.ai_family;
  system.ai_socktype = socket_type(hints.ai_qp_type);
  system.ai_protocol = protocol(hints.ai_port_space, system.ai_socktype);
  // Without any hint the resolver would list datagram and raw sockets as well.
  if (system.ai_socktype == 0 && system.ai_protocol == 0) system.ai_socktype = SOCK_STREAM;
  return system;
}

// Everything in the result is allocated by malloc(3), because the program may free it with the
// rdma_freeaddrinfo(3) of another library.
bool copy_address(const sockaddr* from, socklen_t bytes, sockaddr*& to, socklen_t& to_bytes) {
  if (!from || bytes == 0) return true;
  to = static_cast<sockaddr*>(std::malloc(bytes));
  if (!to) return false;
  std::memcpy(to, from, bytes);
  to_bytes = bytes;
  return true;
}

// Uses the first result of the resolver. RAI_PASSIVE makes it the source, otherwise it is the
// destination: rdma_getaddrinfo(3).
// A canonical name is for information only: where its copy fails, the result lacks the name.
bool from_system(const addrinfo& system, const rdma_addrinfo& hints, rdma_addrinfo& info) {
  const bool datagram = system.ai_socktype == SOCK_DGRAM;
  info.ai_family = system.ai_family;
  info.ai_qp_type = hints.ai_qp_type;
  if (info.ai_qp_type == 0) info.ai_qp_type = datagram ? IBV_QPT_UD : IBV_QPT_RC;
  info.ai_port_space = hints.ai_port_space;
  if (info.ai_port_space == 0) info.ai_port_space = datagram ? RDMA_PS_UDP : RDMA_PS_TCP;
  if (hints.ai_flags & RAI_PASSIVE) {
    info.ai_flags = RAI_PASSIVE;
    if (system.ai_canonname) info.ai_src_canonname = strdup(system.ai_canonname);
    return copy_address(system.ai_addr, system.ai_addrlen, info.ai_src_addr, info.ai_src_len);
  }
  if (system.ai_canonname) info.ai_dst_canonname = strdup(system.ai_canonname);
  return copy_address(system.ai_addr, system.ai_addrlen, info.ai_dst_addr, info.ai_dst_len);
}

// 0, an EAI_* value, or -1 with errno set.
int resolve(const char* node, const char* service, const rdma_addrinfo& hints,
            rdma_addrinfo& info) {
  const addrinfo wanted = to_system(hints);
  addrinfo* found = nullptr;
  if (const int failed = ::getaddrinfo(node, service, &wanted, &found)) return failed;
  const bool copied = from_system(*found, hints, info);
  ::freeaddrinfo(found);
  return copied ? 0 : answer(ENOMEM);
}

// With hints alone, and neither a name nor a service, the result repeats the hints.
int take_hints(const rdma_addrinfo& hints, rdma_addrinfo& info) {
  info.ai_flags = hints.ai_flags;
  info.ai_family = hints.ai_family;
  info.ai_qp_type = hints.ai_qp_type == 0 ? static_cast<int>(IBV_QPT_RC) : hints.ai_qp_type;
  info.ai_port_space =
      hints.ai_port_space == 0 ? static_cast<int>(RDMA_PS_TCP) : hints.ai_port_space;
  const bool copied =
      copy_address(hints.ai_dst_addr, hints.ai_dst_len, info.ai_dst_addr, info.ai_dst_len);
  return copied ? 0 : answer(ENOMEM);
}

// Programs print either errno or gai_strerror() of the result, so both must make sense.
void set_errno(int failed) {
  switch (failed) {
    case EAI_MEMORY:
      errno = ENOMEM;
      break;
    case EAI_AGAIN:
      errno = EAGAIN;
      break;
    case EAI_NONAME:
      errno = EADDRNOTAVAIL;
      break;
    case EAI_SYSTEM:
    case -1:
      break;
    default:
      errno = EINVAL;
      break;
  }
}

bool copy_text(const char* from, char*& to) {
  if (!from) return true;
  to = strdup(from);
  return to != nullptr;
}

bool copy_bytes(const void* from, std::size_t bytes, void*& to, std::size_t& to_bytes) {
  if (!from || bytes == 0) return true;
  to = std::malloc(bytes);
  if (!to) return false;
  std::memcpy(to, from, bytes);
  to_bytes = bytes;
  return true;
}

bool copy_parts(const rdma_addrinfo& from, rdma_addrinfo& to) {
  return copy_address(from.ai_src_addr, from.ai_src_len, to.ai_src_addr, to.ai_src_len) &&
         copy_address(from.ai_dst_addr, from.ai_dst_len, to.ai_dst_addr, to.ai_dst_len) &&
         copy_text(from.ai_src_canonname, to.ai_src_canonname) &&
         copy_text(from.ai_dst_canonname, to.ai_dst_canonname) &&
         copy_bytes(from.ai_route, from.ai_route_len, to.ai_route, to.ai_route_len) &&
         copy_bytes(from.ai_connect, from.ai_connect_len, to.ai_connect, to.ai_connect_len);
}

}  // namespace

// Zeros from calloc(3) make an incomplete copy one that can be freed, which the owner does at each
// early return.
rdma_addrinfo* AddressInfo::copy(const rdma_addrinfo& from) {
  Owned made(static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo))));
  if (!made) return nullptr;
  made->ai_flags = from.ai_flags;
  made->ai_family = from.ai_family;
  made->ai_qp_type = from.ai_qp_type;
  made->ai_port_space = from.ai_port_space;
  if (!copy_parts(from, *made)) return nullptr;
  if (from.ai_next) {
    made->ai_next = copy(*from.ai_next);
    if (!made->ai_next) return nullptr;
  }
  return made.release();
}

void AddressInfo::Free::operator()(rdma_addrinfo* info) const {
  cm::freeaddrinfo(info);
}

int AddressInfo::find(const char* node, const char* service, const rdma_addrinfo* hints,
                      rdma_addrinfo** result) {
  if (!node && !service && !hints) return answer(EINVAL);
  const rdma_addrinfo none{};
  const rdma_addrinfo& wanted = hints ? *hints : none;
  auto* info = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  if (!info) return answer(ENOMEM);
  // Where the search gives no source, that of the hints is returned: rdma_getaddrinfo(3).
  int failed = node || service ? resolve(node, service, wanted, *info) : take_hints(wanted, *info);
  if (failed == 0 && info->ai_src_len == 0 &&
      !copy_address(wanted.ai_src_addr, wanted.ai_src_len, info->ai_src_addr, info->ai_src_len)) {
    failed = answer(ENOMEM);
  }
  if (failed == 0) {
    *result = info;
    return 0;
  }
  set_errno(failed);
  // The destruction calls free(3), which may change errno in older versions of the C library.
  const int kept = errno;
  cm::freeaddrinfo(info);
  errno = kept;
  return failed;
}

bool AddressInfo::means_this_host(const char* node, const char* service,
                                  const rdma_addrinfo& info) {
  sockaddr_storage source{};
  if (!node || service || !take_address(info.ai_src_addr, source)) return false;
  sockaddr_storage numeric{};
  return device::is_loopback_address(source) && !device::parse_address(node, numeric);
}

bool AddressInfo::set_source(rdma_addrinfo& info, const sockaddr_storage& address) {
  sockaddr* made = nullptr;
  socklen_t bytes = 0;
  if (!copy_address(reinterpret_cast<const sockaddr*>(&address), device::length_of(address), made,
                    bytes)) {
    return false;
  }
  std::free(info.ai_src_addr);
  info.ai_src_addr = made;
  info.ai_src_len = bytes;
  info.ai_family = address.ss_family;
  return true;
}

void freeaddrinfo(rdma_addrinfo* info) {
  while (info) {
    rdma_addrinfo* const next = info->ai_next;
    std::free(info->ai_src_addr);
    std::free(info->ai_dst_addr);
    std::free(info->ai_src_canonname);
    std::free(info->ai_dst_canonname);
    std::free(info->ai_route);
    std::free(info->ai_connect);
    std::free(info);
    info = next;
  }
}

}  // namespace weft::cm
