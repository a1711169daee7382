#include "device/local/peer_contexts.h"

#include <algorithm>

#include "device/limits.h"

namespace weft::device {

std::shared_ptr<const PeerProcess> PeerContexts::find(const ProcessMark::Name& mark) const {
  const auto found =
      std::ranges::find_if(known_, [&](const auto& context) { return context->mark() == mark; });
  return found == known_.end() ? nullptr : *found;
}

// To look costs a system call for each. Connections keep what they use of a context.
bool PeerContexts::has_room() {
  if (known_.size() < look_at_) return true;
  std::erase_if(known_, [](const auto& context) { return !context->alive(); });
  look_at_ = std::clamp(2 * known_.size(), std::size_t{16}, limits::max_peer_contexts);
  return known_.size() < limits::max_peer_contexts;
}

}  // namespace weft::device
