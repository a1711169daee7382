#include "device/queue_pair/requests.h"

#include <cerrno>

namespace weft::device {
namespace {

using iwarp::Operation;

// ibv_send_wr keeps the operands of different operations in unions, so only those of this operation
// may be read.
void set_target(const ibv_send_wr& request, iwarp::WorkRequest& work) {
  switch (work.operation) {
    case Operation::send:
    case Operation::bind_window:
    case Operation::local_invalidate:
      break;
    case Operation::send_invalidate:
      work.rkey = request.invalidate_rkey;
      break;
    case Operation::send_immediate:
      work.immediate_be = request.imm_data;
      break;
    case Operation::write_immediate:
      work.immediate_be = request.imm_data;
      [[fallthrough]];
    case Operation::write:
    case Operation::read:
    case Operation::atomic_write:
      work.remote_address = request.wr.rdma.remote_addr;
      work.rkey = request.wr.rdma.rkey;
      break;
    case Operation::compare_swap:
    case Operation::fetch_add:
      work.remote_address = request.wr.atomic.remote_addr;
      work.rkey = request.wr.atomic.rkey;
      work.compare_or_add = request.wr.atomic.compare_add;
      work.swap = request.wr.atomic.swap;
      break;
  }
}

}  // namespace

// The opcodes that are left out (TSO, flush, those of drivers) need hardware that this device does
// not imitate.
bool operation_of(ibv_wr_opcode opcode, iwarp::Operation& operation) {
  switch (opcode) {
    case IBV_WR_SEND:
      operation = Operation::send;
      return true;
    case IBV_WR_SEND_WITH_INV:
      operation = Operation::send_invalidate;
      return true;
    case IBV_WR_SEND_WITH_IMM:
      operation = Operation::send_immediate;
      return true;
    case IBV_WR_RDMA_WRITE:
      operation = Operation::write;
      return true;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      operation = Operation::write_immediate;
      return true;
    case IBV_WR_RDMA_READ:
      operation = Operation::read;
      return true;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      operation = Operation::compare_swap;
      return true;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      operation = Operation::fetch_add;
      return true;
    case IBV_WR_ATOMIC_WRITE:
      operation = Operation::atomic_write;
      return true;
    case IBV_WR_BIND_MW:
      operation = Operation::bind_window;
      return true;
    case IBV_WR_LOCAL_INV:
      operation = Operation::local_invalidate;
      return true;
    default:
      return false;
  }
}

std::uint32_t missing_operations(const Adapter& adapter) {
  const auto bit = [](Operation operation) { return 1U << static_cast<unsigned>(operation); };
  std::uint32_t missing = 0;
  if (adapter.most(Capability::atomics) == 0) {
    missing |=
        bit(Operation::compare_swap) | bit(Operation::fetch_add) | bit(Operation::atomic_write);
  }
  if (adapter.most(Capability::immediates) == 0) {
    missing |= bit(Operation::send_immediate) | bit(Operation::write_immediate);
  }
  return missing;
}

int translate(const ibv_send_wr& given, bool signal_all, std::span<iwarp::LocalSlice> slices,
              SendRequest& request) {
  iwarp::WorkRequest& work = request.work;
  request.verbs = &given;
  work.wr_id = given.wr_id;
  work.signaled = signal_all || (given.send_flags & IBV_SEND_SIGNALED) != 0;
  work.solicited = (given.send_flags & IBV_SEND_SOLICITED) != 0;
  // Taken over for every operation; it has an effect only behind reads and atomics.
  work.fence = (given.send_flags & IBV_SEND_FENCE) != 0;
  // Binds and invalidations have no data, and their operands are in other unions: see
  // translate_local().
  if (is_local(work.operation)) return 0;
  work.inline_data = (given.send_flags & IBV_SEND_INLINE) != 0;
  // Data cannot be placed inline where it is only going to be fetched.
  if (work.inline_data && fetches(work.operation)) return EINVAL;
  const auto count = static_cast<std::size_t>(given.num_sge);
  for (std::size_t i = 0; i < count; ++i) {
    const ibv_sge& sge = given.sg_list[i];
    slices[i] = {sge.addr, sge.length, sge.lkey};
  }
  work.slices = slices.first(count);
  set_target(given, work);
  return 0;
}

int translate_local(const ibv_send_wr& given, const ibv_context* context,
                    MemoryAccess::LocalRequest& request) {
  if (given.opcode != IBV_WR_BIND_MW) {
    request.binding.rkey = given.invalidate_rkey;
    return 0;
  }
  const ibv_mw_bind_info& info = given.bind_mw.bind_info;
  // Only the window itself is checked. Its key, region and rights are checked when its turn comes,
  // because requests before it may change them.
  if (!given.bind_mw.mw || given.bind_mw.mw->context != context) return EINVAL;
  request.window = MemoryWindow::of(given.bind_mw.mw);
  request.binding = {.rkey = given.bind_mw.rkey,
                     .lkey = info.mr ? info.mr->lkey : 0,
                     .address = info.addr,
                     .length_bytes = info.length,
                     .access = info.mw_access_flags};
  return 0;
}

// A full queue is ENOMEM: programs post until they see it, and then poll.
int error_of(iwarp::Requester::Posted posted) {
  switch (posted) {
    case iwarp::Requester::Posted::ok:
      return 0;
    case iwarp::Requester::Posted::queue_full:
      return ENOMEM;
    case iwarp::Requester::Posted::invalid:
      return EINVAL;
    case iwarp::Requester::Posted::unsupported:
      return EOPNOTSUPP;
  }
  return EINVAL;
}

}  // namespace weft::device
