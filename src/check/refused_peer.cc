// The side that has refused its peer an access: which region it was, and what this side has
// forgotten.
#include "check/refused_peer.h"

#include <fmt/format.h>

#include <string_view>

#include "check/memory_of_requests.h"

namespace weft::check {
namespace {

std::string_view name_of(unsigned right) {
  return right == IBV_ACCESS_REMOTE_WRITE  ? "Write"
         : right == IBV_ACCESS_REMOTE_READ ? "Read"
                                           : "atomic";
}

std::string_view flag_of(unsigned right) {
  return right == IBV_ACCESS_REMOTE_WRITE  ? "IBV_ACCESS_REMOTE_WRITE"
         : right == IBV_ACCESS_REMOTE_READ ? "IBV_ACCESS_REMOTE_READ"
                                           : "IBV_ACCESS_REMOTE_ATOMIC";
}

bool grants(ibv_qp* qp, unsigned right) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  const auto query = checker().below.table->query_qp;
  return query(qp, &attributes, IBV_QP_ACCESS_FLAGS, &initial) != 0 ||
         (attributes.qp_access_flags & right) != 0;
}

bool is_in_domain_of(const ibv_qp& qp, const MemoryRegion& region) {
  const std::lock_guard lock(checker().mutex);
  return checker().parent_domains.are_one(region.domain, qp.pd);
}

// In the order in which the device looks. The region may have changed since.
std::string cause(ibv_qp* qp, const provider::RefusedAccess& refused, const MemoryRegion& region) {
  if (!region.mr) return "No region of this process has had this key; a window may have had it.";
  const std::string name = describe(region);
  if (region.gone != 0)
    return fmt::format("That was the key of a {}, which is deregistered.", name);
  if (!is_in_domain_of(*qp, region)) {
    return fmt::format("The {} is in another protection domain than the queue pair.", name);
  }
  if ((region.access & refused.right) == 0) {
    return fmt::format("The {} was registered without {}.", name, flag_of(refused.right));
  }
  if (!grants(qp, refused.right)) {
    return fmt::format("The qp_access_flags of the queue pair have no {}.", flag_of(refused.right));
  }
  if (!region.covers(refused.offset, refused.length_bytes)) {
    return fmt::format("The {} does not cover them.", name);
  }
  return fmt::format("The {} allows it now.", name);
}

}  // namespace

void check_refused_peer(Call& call, ibv_qp* qp) {
  provider::RefusedAccess refused;
  if (checker().below.table->read_refused_access(qp, &refused) != 0 || refused.stag == 0) return;
  MemoryRegion region;
  std::vector<Place> places;
  {
    Checker& state = checker();
    const std::lock_guard lock(state.mutex);
    if (const MemoryRegion* found = state.regions.find(refused.stag)) region = *found;
    if (region.gone != 0) places.push_back({"The region was deregistered here", region.gone});
    if (region.mr) places.push_back({"The region was registered here", region.made});
    const Object* object = state.objects.find(qp);
    places.push_back({"The queue pair was made here", object ? object->made : 0});
  }
  call.report(Rule::refused_peer,
              fmt::format("Queue pair {:#x} refused its peer {} {} of {} bytes at {:#x} with rkey "
                          "{:#x}. {}",
                          qp->qp_num, name_of(refused.right) == "atomic" ? "an" : "a",
                          name_of(refused.right), refused.length_bytes, refused.offset,
                          refused.stag, cause(qp, refused, region)),
              "The queue pair ends here", std::move(places));
}

}  // namespace weft::check
