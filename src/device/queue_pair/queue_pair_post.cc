// Posting work, and the states in which it may be posted.
#include <array>
#include <cerrno>

#include "device/limits.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/queue_pair_turn.h"

namespace weft::device {
namespace {

using iwarp::Operation;

// False for what this device has no operation for.
bool operation_of(ibv_wr_opcode opcode, Operation& operation) {
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

void add_list(Traffic& traffic, const ibv_sge* list, int count) {
  ++traffic.operations;
  for (int i = 0; i < count; ++i) traffic.bytes += list[i].length;
}

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

}  // namespace

int QueuePair::post_send(ibv_send_wr* request, ibv_send_wr** bad) {
  const Turn turn(*this);
  int failed = 0;
  for (; request; request = request->next) {
    failed = post_one(*request);
    if (failed == 0) continue;
    *bad = request;
    break;
  }
  // What was accepted before a bad request is carried out: ibv_post_send(3). One sendmsg for all.
  stream_ ? finish_turn() : await_stream();
  return failed;
}

// What posting would do, and whether it may be done at all; `slices` has room for the most.
int QueuePair::prepare(const ibv_send_wr& request, iwarp::WorkRequest& work,
                       std::span<iwarp::LocalSlice> slices) const {
  if (!operation_of(request.opcode, work.operation)) return EOPNOTSUPP;
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > limits_.send_slices) {
    return EINVAL;
  }
  // ibv_post_send(3): nobody answers on an unreliable connection.
  if (is_unreliable() && is_answered(work.operation)) return EINVAL;
  if (handle_.qp.state == IBV_QPS_ERR) return 0;
  if (!takes_work()) return EINVAL;
  if (work.operation == Operation::send_immediate && !takes_send_immediate()) return EOPNOTSUPP;
  work.wr_id = request.wr_id;
  work.signaled = signal_all_ || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  work.solicited = (request.send_flags & IBV_SEND_SOLICITED) != 0;
  work.fence = (request.send_flags & IBV_SEND_FENCE) != 0;
  if (is_local(work.operation)) return 0;
  work.inline_data = (request.send_flags & IBV_SEND_INLINE) != 0;
  // Data cannot be placed inline where it is only going to be fetched.
  if (work.inline_data && fetches(work.operation)) return EINVAL;
  work.slices = slices.first(static_cast<std::size_t>(request.num_sge));
  for (std::size_t i = 0; i < work.slices.size(); ++i) {
    const ibv_sge& sge = request.sg_list[i];
    slices[i] = {sge.addr, sge.length, sge.lkey};
  }
  set_target(request, work);
  return 0;
}

int QueuePair::post_one(const ibv_send_wr& request) {
  const int failed = accept_one(request);
  if (failed == 0) count_posted(request);
  return failed;
}

int QueuePair::accept_one(const ibv_send_wr& request) {
  if (is_datagram()) return post_datagram(request);
  iwarp::WorkRequest work;
  std::array<iwarp::LocalSlice, limits::max_slices> slices;
  if (const int failed = prepare(request, work, slices)) return failed;
  if (send_slots_.full()) return ENOMEM;
  if (handle_.qp.state == IBV_QPS_ERR) {
    flush_send(request);
    return 0;
  }
  return is_local(work.operation) ? post_local(request, work) : post_work(work);
}

void QueuePair::count_posted(const ibv_send_wr& request) {
  switch (request.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return add_list(counters_.writes, request.sg_list, request.num_sge);
    case IBV_WR_RDMA_READ:
      return add_list(counters_.reads, request.sg_list, request.num_sge);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return add_list(counters_.atomics, request.sg_list, request.num_sge);
    case IBV_WR_BIND_MW:
    case IBV_WR_LOCAL_INV:
      ++counters_.local.operations;
      return;
    default:
      return add_list(counters_.sends, request.sg_list, request.num_sge);
  }
}

int QueuePair::post_all(const ibv_send_wr& first) {
  const Turn turn(*this);
  std::uint32_t wanted = send_slots_.taken();
  std::array<iwarp::LocalSlice, limits::max_slices> slices;
  for (const ibv_send_wr* request = &first; request; request = request->next) {
    iwarp::WorkRequest work;
    const int failed = is_datagram() ? check_datagram(*request) : prepare(*request, work, slices);
    if (failed != 0) return failed;
    if (!is_datagram() && !iwarp::Requester::acceptable(limits_, work)) return EINVAL;
    if (++wanted > send_slots_.capacity()) return ENOMEM;
  }
  for (const ibv_send_wr* request = &first; request; request = request->next) {
    if (const int failed = post_one(*request)) return failed;  // cannot be: all was looked at
  }
  stream_ ? finish_turn() : await_stream();
  return 0;
}

void QueuePair::offer_batches(std::uint64_t operations) {
  batch_ = std::make_unique<SendBatch>(*this, operations);
  SendBatch::set_calls(handle_.extended);
}

int QueuePair::post_work(const iwarp::WorkRequest& work) {
  const bool now = stream_ && confirmed_ && handle_.qp.state != IBV_QPS_SQD;
  const int failed = error_of(now ? stream_->post(work) : waiting_.post(limits_, work));
  if (failed == 0) send_slots_.take();
  return failed;
}

// What it names is checked in its turn, except for what no program could have meant.
int QueuePair::post_local(const ibv_send_wr& request, iwarp::WorkRequest& work) {
  LocalWork local;
  if (work.operation == Operation::bind_window) {
    const ibv_mw_bind_info& info = request.bind_mw.bind_info;
    if (!request.bind_mw.mw || request.bind_mw.mw->context != handle_.qp.context) return EINVAL;
    local.window = MemoryWindow::of(request.bind_mw.mw);
    local.binding = {.rkey = request.bind_mw.rkey,
                     .lkey = info.mr ? info.mr->lkey : 0,
                     .address = info.addr,
                     .length_bytes = info.length,
                     .access = info.mw_access_flags};
  } else {
    local.binding.rkey = request.invalidate_rkey;
  }
  local_work_.push_back(local);
  const int failed = post_work(work);
  if (failed != 0) local_work_.pop_back();
  return failed;
}

int QueuePair::bind_window(MemoryWindow& window, ibv_mw_bind& bind) {
  ibv_send_wr request{};
  request.wr_id = bind.wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind.send_flags;
  request.bind_mw.mw = window.verbs();
  request.bind_mw.rkey = ibv_inc_rkey(window.verbs()->rkey);
  request.bind_mw.bind_info = bind.bind_info;
  ibv_send_wr* bad = nullptr;
  const int failed = post_send(&request, &bad);
  if (failed == 0) window.verbs()->rkey = request.bind_mw.rkey;
  return failed;
}

void QueuePair::flush_send(const ibv_send_wr& request) {
  Operation operation{};
  operation_of(request.opcode, operation);
  send_slots_.take();
  complete_send({.wr_id = request.wr_id, .operation = operation, .status = iwarp::Status::flushed});
}

int QueuePair::post_receive(ibv_recv_wr* request, ibv_recv_wr** bad) {
  const Turn turn(*this);
  for (; request; request = request->next) {
    int failed = 0;
    if (shared_receives_ || handle_.qp.state == IBV_QPS_RESET) {
      failed = EINVAL;
    } else if (handle_.qp.state == IBV_QPS_ERR) {
      failed = flush_receive(*request);
    } else {
      failed = receives_.post(*request);
    }
    if (failed == 0) {
      add_list(counters_.receives, request->sg_list, request->num_sge);
      continue;
    }
    *bad = request;
    receives_posted();
    return failed;
  }
  receives_posted();
  return 0;
}

int QueuePair::flush_receive(const ibv_recv_wr& request) {
  if (receives_.slots().full()) return ENOMEM;
  receives_.slots().take();
  complete_receive({.wr_id = request.wr_id, .status = iwarp::Status::flushed});
  return 0;
}

}  // namespace weft::device
