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

struct Search {
  std::string node;
  std::string service;
  rdma_addrinfo hints{};  // its numbers only

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

int Identifier::begin_addrinfo() {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::idle && stage_ != Stage::bound) return EINVAL;
  if (resolving_addrinfo_) return EBUSY;
  resolving_addrinfo_ = true;
  return 0;
}

void Identifier::end_addrinfo(AddressInfo::Owned found, int failed) {
  const std::lock_guard lock(mutex_);
  resolving_addrinfo_ = false;
  addrinfo_ = std::move(found);
  auto event = make_event(RDMA_CM_EVENT_ADDR_RESOLVED, -failed);
  newer::set_type(event->event,
                  failed == 0 ? newer::event_addrinfo_resolved : newer::event_addrinfo_error);
  push(std::move(event));
}

int Identifier::query_addrinfo(rdma_addrinfo** result) {
  const std::lock_guard lock(mutex_);
  if (!addrinfo_) return EINVAL;
  *result = AddressInfo::copy(*addrinfo_);
  return *result ? 0 : ENOMEM;
}

int Identifier::write_event(int status, std::uint64_t argument) {
  const std::lock_guard lock(mutex_);
  auto event = make_event(RDMA_CM_EVENT_ADDR_RESOLVED, status);
  newer::set_type(event->event, newer::event_user);
  newer::set_argument(event->event, argument);
  push(std::move(event));
  return 0;
}

// A name server may take its time: the search has a thread, and the id lives until it is over.
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
