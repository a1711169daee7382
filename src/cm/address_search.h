// The search of rdma_resolve_addrinfo(3), which does not block its caller.
#pragma once

#include <rdma/rdma_cma.h>

#include <memory>

namespace weft::cm {

class Identifier;

// Starts a search as rdma_getaddrinfo(3) does it, in a thread of its own, because a name server may
// be slow. The thread keeps `owner` alive; its result is an event of `owner`. Returns 0 or an errno
// value: EOPNOTSUPP for RAI_SA, since there is no subnet administrator.
int start_address_search(const std::shared_ptr<Identifier>& owner, const char* node,
                         const char* service, const rdma_addrinfo* hints);

}  // namespace weft::cm
