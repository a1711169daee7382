#include "fabric/info.h"

#include <netdb.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <vector>

#include "fabric/address.h"
#include "fabric/hints.h"

namespace weft::fabric {
namespace {

using Addresses = std::vector<SocketAddress>;

int family_of(const fi_info* hints) {
  if (!hints) return AF_UNSPEC;
  if (hints->addr_format == FI_SOCKADDR_IN) return AF_INET;
  return hints->addr_format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_UNSPEC;
}

// Resolves a node and a service. IPv4 comes first: a listener at the wildcard address is an IPv4
// one.
Addresses resolve(const char* node, const char* service, std::uint64_t flags, int family) {
  addrinfo wanted{};
  wanted.ai_family = family;
  wanted.ai_socktype = SOCK_STREAM;
  if ((flags & FI_SOURCE) != 0) wanted.ai_flags |= AI_PASSIVE;
  if ((flags & FI_NUMERICHOST) != 0) wanted.ai_flags |= AI_NUMERICHOST;
  addrinfo* list = nullptr;
  // No address leads to -FI_ENODATA, so that libfabric goes on to other providers.
  if (getaddrinfo(node, service, &wanted, &list) != 0) return {};
  Addresses found;
  for (const addrinfo* at = list; at; at = at->ai_next) {
    if (const auto address = read_address(at->ai_addr, at->ai_addrlen)) found.push_back(*address);
  }
  freeaddrinfo(list);
  std::stable_partition(found.begin(), found.end(), [](const SocketAddress& address) {
    return address.storage.ss_family == AF_INET;
  });
  return found;
}

// Allocated by malloc(3), because fi_freeinfo frees it.
void set_address(void*& to, std::size_t& bytes, const SocketAddress& address) {
  to = std::malloc(address.bytes);
  if (!to) throw std::bad_alloc();
  std::memcpy(to, &address.storage, address.bytes);
  bytes = address.bytes;
}

char* set_text(const char* text) {
  char* const copy = strdup(text);
  if (!copy) throw std::bad_alloc();
  return copy;
}

void describe_queues(fi_info& info, const fi_info* hints) {
  const stream::Options defaults;
  fi_tx_attr& tx = *info.tx_attr;
  tx.caps = FI_MSG | FI_SEND;
  tx.msg_order = message_order;
  tx.comp_order = FI_ORDER_STRICT;
  tx.size =
      hints && hints->tx_attr && hints->tx_attr->size ? hints->tx_attr->size : defaults.send_queue;
  tx.iov_limit = max_pieces;
  fi_rx_attr& rx = *info.rx_attr;
  rx.caps = FI_MSG | FI_RECV;
  rx.msg_order = message_order;
  rx.comp_order = FI_ORDER_STRICT;
  rx.size = hints && hints->rx_attr && hints->rx_attr->size ? hints->rx_attr->size
                                                            : defaults.receive_queue;
  rx.iov_limit = max_pieces;
}

// max_msg_size is that of a call, which may transfer less: a stream has no messages.
void describe_endpoint(fi_info& info, const fi_info* hints) {
  fi_ep_attr& endpoint = *info.ep_attr;
  endpoint.type = FI_EP_SOCK_STREAM;
  const bool iwarp = hints && hints->ep_attr && hints->ep_attr->protocol == FI_PROTO_IWARP;
  endpoint.protocol = iwarp ? FI_PROTO_IWARP : FI_PROTO_RSTREAM;
  endpoint.protocol_version = protocol_version;
  endpoint.max_msg_size = std::numeric_limits<ssize_t>::max();
  endpoint.tx_ctx_cnt = 1;
  endpoint.rx_ctx_cnt = 1;
}

void describe_domain(fi_info& info, const fi_info* hints) {
  const fi_domain_attr* wanted = hints ? hints->domain_attr : nullptr;
  fi_domain_attr& domain = *info.domain_attr;
  domain.name = set_text(domain_name());
  domain.threading = FI_THREAD_SAFE;
  // Streams make progress by themselves; a program that asks to drive them gets what it asks for.
  domain.control_progress =
      wanted && wanted->control_progress ? wanted->control_progress : FI_PROGRESS_AUTO;
  domain.data_progress =
      wanted && wanted->data_progress ? wanted->data_progress : FI_PROGRESS_MANUAL;
  domain.resource_mgmt = FI_RM_ENABLED;
  domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  domain.ep_cnt = stream::max_queue;
  domain.tx_ctx_cnt = 1;
  domain.rx_ctx_cnt = 1;
  domain.max_ep_tx_ctx = 1;
  domain.max_ep_rx_ctx = 1;
  info.fabric_attr->name = set_text(provider_name);  // libfabric sets prov_name
}

// fi_dupinfo(nullptr) returns an empty description with all its attributes, as fi_allocinfo does.
Info describe(const fi_info* hints) {
  Info info(fi_dupinfo(nullptr));
  if (!info) throw std::bad_alloc();
  info->caps = capabilities;
  info->addr_format = FI_SOCKADDR;
  if (hints && hints->addr_format != FI_FORMAT_UNSPEC) info->addr_format = hints->addr_format;
  describe_queues(*info, hints);
  describe_endpoint(*info, hints);
  describe_domain(*info, hints);
  return info;
}

std::optional<SocketAddress> source_in(const fi_info* hints) {
  return hints ? read_address(hints->src_addr, hints->src_addrlen) : std::nullopt;
}
std::optional<SocketAddress> destination_in(const fi_info* hints) {
  return hints ? read_address(hints->dest_addr, hints->dest_addrlen) : std::nullopt;
}

// fi_getinfo(3): a source address is returned in any case. Without a destination it is the
// wildcard.
Info with_addresses(const fi_info* hints, std::optional<SocketAddress> source,
                    std::optional<SocketAddress> destination) {
  Info info = describe(hints);
  if (!source) {
    source = destination ? source_towards(*destination) : wildcard(family_of(hints));
  }
  if (source) set_address(info->src_addr, info->src_addrlen, *source);
  if (destination) set_address(info->dest_addr, info->dest_addrlen, *destination);
  return info;
}

// One entry for each address that node and service resolve to.
std::vector<Info> offers(const char* node, const char* service, std::uint64_t flags,
                         const fi_info* hints) {
  std::vector<Info> list;
  if ((flags & FI_PROV_ATTR_ONLY) != 0) {
    list.push_back(describe(hints));
    return list;
  }
  if (!node && !service) {
    list.push_back(with_addresses(hints, source_in(hints), destination_in(hints)));
    return list;
  }
  for (const SocketAddress& address : resolve(node, service, flags, family_of(hints))) {
    const bool source = (flags & FI_SOURCE) != 0;
    list.push_back(with_addresses(hints, source ? address : source_in(hints),
                                  source ? destination_in(hints) : address));
  }
  return list;
}

}  // namespace

Info copy_of(const fi_info& info) {
  Info copy(fi_dupinfo(&info));
  if (!copy) throw std::bad_alloc();
  return copy;
}

// FI_PROTO_IWARP selects the stream variant that uses only RDMA writes and sends.
stream::Options options_of(const fi_info& info) {
  stream::Options options;
  const auto size = [](std::size_t wanted, std::uint32_t otherwise) {
    // Larger numbers are cut to the largest one of 32 bits, which is out of range, too. Without
    // that their upper bits would be lost before stream::check() sees them.
    const std::size_t most = std::numeric_limits<std::uint32_t>::max();
    return wanted == 0 ? otherwise : static_cast<std::uint32_t>(std::min(wanted, most));
  };
  if (info.tx_attr) options.send_queue = size(info.tx_attr->size, options.send_queue);
  if (info.rx_attr) options.receive_queue = size(info.rx_attr->size, options.receive_queue);
  if (info.ep_attr && info.ep_attr->protocol == FI_PROTO_IWARP) {
    options.variant = stream::Variant::write_and_send;
  }
  stream::check(options);
  return options;
}

// The result is a list linked by `next`, which the program frees by fi_freeinfo.
int get_info(std::uint32_t /*version*/, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info) {
  if (!info) return -FI_EINVAL;
  if (hints && !can_serve(*hints)) return -FI_ENODATA;
  std::vector<Info> list = offers(node, service, flags, hints);
  if (list.empty()) return -FI_ENODATA;
  // From the end, because an entry takes its successor before its own pointer is released.
  for (std::size_t i = list.size() - 1; i > 0; --i) list[i - 1]->next = list[i].release();
  *info = list.front().release();
  return 0;
}

}  // namespace weft::fabric
