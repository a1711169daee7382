#include "cm/address_search.h"

#include <cerrno>
#include <exception>
#include <string>
#include <utility>

#include "base/simulated_kernel.h"
#include "base/thread.h"
#include "cm/addrinfo.h"
#include "cm/identifier.h"
#include "cm/newer.h"

namespace weft::cm {

namespace {

// The arguments of a search, copied for its thread.
struct Search {
  std::string node;
  std::string service;
  rdma_addrinfo hints{};  // only the numbers of the program's hints

  // An errno value, not a value of EAI_*: find() sets errno for those, too.
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

int start_address_search(const std::shared_ptr<Identifier>& owner, const char* node,
                         const char* service, const rdma_addrinfo* hints) {
  if (!node && !service) return EINVAL;
  Search search{.node = node ? node : "", .service = service ? service : ""};
  if (hints) {
    if ((hints->ai_flags & newer::rai_sa) != 0) return EOPNOTSUPP;
    // The pointers of the hints are left out: the program may free what they refer to when this
    // call returns, and the thread still runs then.
    search.hints.ai_flags = hints->ai_flags & ~newer::rai_dns;
    search.hints.ai_family = hints->ai_family;
    search.hints.ai_qp_type = hints->ai_qp_type;
    search.hints.ai_port_space = hints->ai_port_space;
  }
  if (const int failed = owner->begin_addrinfo()) return failed;
  const auto run = [owner, search = std::move(search)] {
    AddressInfo::Owned found;
    const int failed = search.run(found);
    owner->end_addrinfo(std::move(found), failed);
  };
  // In a simulation only numeric addresses are found, which takes no time.
  if (SimulatedKernel::current()) {
    run();
    return 0;
  }
  // Detached, because the end of the thread is an event of the id, and nothing waits for the thread
  // itself.
  try {
    Thread(run, Thread::Stack::of_program).detach();
  } catch (const std::exception&) {
    // pthread_create(3) reports EAGAIN where the system has no room for a thread. The id must allow
    // a later search.
    owner->give_up_addrinfo();
    return EAGAIN;
  }
  return 0;
}

}  // namespace weft::cm
