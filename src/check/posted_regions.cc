#include "check/posted_regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "check/describing.h"
#include "check/memory_of_requests.h"

namespace weft::check {
namespace {

const Request* user_of(const std::deque<Request>& requests, std::uint32_t key) {
  const auto found = std::find_if(requests.begin(), requests.end(), [&](const Request& request) {
    return std::any_of(request.pieces.begin(), request.pieces.end(), [&](const ibv_sge& piece) {
      return piece.lkey == key && piece.length != 0;
    });
  });
  return found == requests.end() ? nullptr : &*found;
}

}  // namespace

// In the error state and in RESET requests do not use their memory any more.
void check_deregistration(Call& call, const ibv_mr& mr) {
  Checker& state = checker();
  std::string what;
  std::vector<Place> places;
  {
    const std::lock_guard lock(state.mutex);
    for (const auto& account : state.requests.queue_pairs()) {
      const ibv_qp_state in = account->qp->state;
      if (in == IBV_QPS_ERR || in == IBV_QPS_RESET) continue;
      const Request* send = user_of(account->sends, mr.lkey);
      const Request* user = send ? send : user_of(account->receives, mr.lkey);
      if (!user) continue;
      what = send ? describe(*user, account->number)
                  : fmt::format("Receive {:#x} on queue pair {:#x}", user->wr_id, account->number);
      places.push_back({"The request was posted here", user->posted});
      break;
    }
    for (const auto& shared : state.requests.shared()) {
      const Request* user = user_of(shared->receives, mr.lkey);
      if (!user || !places.empty()) continue;
      what = fmt::format("Receive {:#x} on a shared receive queue", user->wr_id);
      places.push_back({"The request was posted here", user->posted});
    }
    if (places.empty()) return;
    if (const MemoryRegion* region = state.regions.find(mr.lkey)) {
      places.push_back({"The region was registered here", region->made});
      what = fmt::format("{} uses the {}, and no completion of it was polled.", what,
                         describe(*region));
    }
  }
  call.report(Rule::posted_region, what, "The region was deregistered here", std::move(places));
}

}  // namespace weft::check
