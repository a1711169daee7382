#include "check/describing.h"

#include <fmt/format.h>

#include <string_view>

namespace weft::check {
namespace {

std::string_view name_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "Write";
    case IBV_WR_RDMA_READ:
      return "Read";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return "Atomic";
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return "Send";
    default:
      return "Request";
  }
}

}  // namespace

std::string describe(ibv_wr_opcode opcode, std::uint64_t wr_id, std::uint32_t queue_pair) {
  return fmt::format("{} {:#x} on queue pair {:#x}", name_of(opcode), wr_id, queue_pair);
}

std::string describe(const Request& request, std::uint32_t queue_pair) {
  return describe(request.opcode, request.wr_id, queue_pair);
}

std::vector<ibv_sge> pieces_of(const ibv_sge* list, int count) {
  constexpr int most = 1024;
  if (!list || count <= 0 || count > most) return {};
  return {list, list + count};
}

WatchedRequest sends_of(const QueuePairAccount& account, std::uint64_t wr_id) {
  return {.queue = account.qp, .receives = false, .wr_id = wr_id};
}

// One of both is null, or the queue pair has a shared queue.
WatchedRequest receives_of(const QueuePairAccount* account, const SharedReceivesAccount* shared,
                           std::uint64_t wr_id) {
  const void* const own = account ? account->qp->srq : nullptr;
  const void* const queue = shared ? static_cast<const void*>(shared->srq) : account->qp;
  return {.queue = own ? own : queue, .receives = true, .wr_id = wr_id};
}

}  // namespace weft::check
