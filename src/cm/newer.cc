// rdma_resolve_addrinfo(3), rdma_query_addrinfo(3) and rdma_write_cm_event(3).
#include <cerrno>
#include <string>
#include <thread>
#include <utility>

#include "cm/answer.h"
#include "cm/cm.h"
#include "cm/identifier.h"
#include "cm/newer.h"

namespace weft::cm {

namespace {

// The arguments of a search, copied for its thread.
struct Search {
  std::string node;
  std::string service;
  rdma_addrinfo hints{};  // only the numbers of the program's hints

  [[nodiscard]] int run(AddressInfo::Owned& found) const {
    rdma_addrinfo* result = nullptr;
    if (AddressInfo::find(node.empty() ? nullptr : node.c_str(),
                          service.empty() ? nullptr : service.c_str(), &hints, &result) != 0) {
      return errno;
    }
    found.reset(result);
    return 0;
  }
};

}  // namespace

// A name server may be slow, so the search has a thread of its own, which keeps the id alive. Its
// end is an event.
int Manager::resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                              const rdma_addrinfo* hints) {
  if (!node && !service) return answer(EINVAL);
  Search search{.node = node ? node : "", .service = service ? service : ""};
  if (hints) {
    if ((hints->ai_flags & newer::rai_sa) != 0) return answer(EOPNOTSUPP);
    search.hints.ai_flags = hints->ai_flags & ~newer::rai_dns;
    search.hints.ai_family = hints->ai_family;
    search.hints.ai_qp_type = hints->ai_qp_type;
    search.hints.ai_port_space = hints->ai_port_space;
  }
  const auto owner = Identifier::of(id)->shared_from_this();
  if (const int failed = owner->begin_addrinfo()) return answer(failed);
  std::thread([owner, search = std::move(search)] {
    AddressInfo::Owned found;
    const int failed = search.run(found);
    owner->end_addrinfo(std::move(found), failed);
  }).detach();
  return complete(id);
}

int Manager::query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info) {
  return answer(Identifier::of(id)->query_addrinfo(info));
}

int Manager::write_cm_event(rdma_cm_id* id, int event, int status, std::uint64_t argument) {
  if (event != newer::event_user) return answer(EINVAL);
  return answer(Identifier::of(id)->write_event(status, argument));
}

}  // namespace weft::cm
