// Results of rdma_getaddrinfo(3).
#pragma once

#include <rdma/rdma_cma.h>

#include <memory>

namespace weft::cm {

struct AddressInfo {
  struct Free {
    void operator()(rdma_addrinfo* info) const;
  };
  using Owned = std::unique_ptr<rdma_addrinfo, Free>;

  // True for a source that was asked for by a name of loopback and without a port, such as
  // "localhost". No peer can connect to an address without a port, so the name means this host and
  // not that address. libfabric's verbs provider asks so for the source that it announces;
  // Linux has no RDMA device at loopback, by which it knows that another address is needed.
  [[nodiscard]] static bool means_this_host(const char* node, const char* service,
                                            const rdma_addrinfo& info);
  // Replaces the source. False for want of memory.
  [[nodiscard]] static bool set_source(rdma_addrinfo& info, const sockaddr_storage& address);
  // rdma_getaddrinfo(3): 0, an EAI_* value, or -1 with errno set.
  static int find(const char* node, const char* service, const rdma_addrinfo* hints,
                  rdma_addrinfo** result);
  // Copies the whole list, for rdma_freeaddrinfo(3). Null where memory runs out.
  [[nodiscard]] static rdma_addrinfo* copy(const rdma_addrinfo& from);
};

}  // namespace weft::cm
