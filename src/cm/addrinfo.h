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

  // rdma_getaddrinfo(3): 0, an EAI_* value, or -1 with errno set.
  static int find(const char* node, const char* service, const rdma_addrinfo* hints,
                  rdma_addrinfo** result);
  // Copies the whole list, for rdma_freeaddrinfo(3). Null where memory runs out.
  [[nodiscard]] static rdma_addrinfo* copy(const rdma_addrinfo& from);
};

}  // namespace weft::cm
