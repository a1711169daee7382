#include "check/accesses.h"

namespace weft::check {
namespace {

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// Two Reads, and two atomics, need no order.
bool need_order(ibv_wr_opcode one, ibv_wr_opcode other) {
  if (one == IBV_WR_RDMA_READ && other == IBV_WR_RDMA_READ) return false;
  return !is_atomic(one) || !is_atomic(other);
}

}  // namespace

std::uint64_t Accesses::add(Access access) {
  if (access.remote.bytes == 0 && access.fills.empty()) return 0;
  const std::uint64_t number = ++latest_;
  if (access.remote.bytes != 0) remote_[{access.peer, access.rkey}].add(access.remote, number);
  for (const MemoryRange& range : access.fills) filled_.add(range, number);
  by_number_.emplace(number, std::move(access));
  return number;
}

void Accesses::remove_remote(const Access& access, std::uint64_t number) {
  const auto region = remote_.find({access.peer, access.rkey});
  if (region == remote_.end()) return;
  region->second.remove(access.remote, number);
  if (region->second.empty()) remote_.erase(region);
}

void Accesses::remove(std::uint64_t number) {
  const auto found = by_number_.find(number);
  if (found == by_number_.end()) return;
  remove_remote(found->second, number);
  for (const MemoryRange& range : found->second.fills) filled_.remove(range, number);
  by_number_.erase(found);
}

void Accesses::note_placed(std::uint64_t number) {
  const auto found = by_number_.find(number);
  if (found != by_number_.end()) remove_remote(found->second, number);
}

std::optional<Access> Accesses::find_unordered(const Access& access) const {
  const auto region = remote_.find({access.peer, access.rkey});
  if (region == remote_.end()) return std::nullopt;
  std::optional<Access> found;
  region->second.find_overlapping(access.remote, [&](std::uint64_t number, const MemoryRange&) {
    const Access& other = by_number_.at(number);
    if (other.queue_pair == access.queue_pair || !need_order(other.opcode, access.opcode)) {
      return false;
    }
    found = other;
    return true;
  });
  return found;
}

std::optional<Access> Accesses::find_filling(const MemoryRanges& ranges, const ibv_qp* queue_pair,
                                             std::uint64_t fenced) const {
  std::optional<Access> found;
  for (const MemoryRange& range : ranges) {
    filled_.find_overlapping(range, [&](std::uint64_t number, const MemoryRange&) {
      const Access& other = by_number_.at(number);
      if (other.queue_pair == queue_pair && number <= fenced) return false;
      found = other;
      return true;
    });
    if (found) break;
  }
  return found;
}

}  // namespace weft::check
