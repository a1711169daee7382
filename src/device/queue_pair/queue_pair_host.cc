// What the protocol core asks of a queue pair, and how its completions look to verbs.
#include <array>

#include "device/memory/memory_window.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::device {
namespace {

using iwarp::Operation;
using iwarp::Status;

ibv_wc_status verbs_status(Status status) {
  switch (status) {
    case Status::success:
      return IBV_WC_SUCCESS;
    case Status::local_length:
      return IBV_WC_LOC_LEN_ERR;
    case Status::local_protection:
      return IBV_WC_LOC_PROT_ERR;
    case Status::local_operation:
      return IBV_WC_LOC_QP_OP_ERR;
    case Status::window_bind:
      return IBV_WC_MW_BIND_ERR;
    case Status::flushed:
      return IBV_WC_WR_FLUSH_ERR;
    case Status::remote_access:
      return IBV_WC_REM_ACCESS_ERR;
    case Status::remote_invalid_request:
      return IBV_WC_REM_INV_REQ_ERR;
    case Status::remote_operation:
      return IBV_WC_REM_OP_ERR;
    case Status::retry_exceeded:
      return IBV_WC_RETRY_EXC_ERR;
    case Status::rnr_retry_exceeded:
      return IBV_WC_RNR_RETRY_EXC_ERR;
    case Status::bad_response:
      return IBV_WC_BAD_RESP_ERR;
  }
  return IBV_WC_GENERAL_ERR;
}

ibv_wc_opcode verbs_opcode(Operation operation) {
  switch (operation) {
    case Operation::send:
    case Operation::send_invalidate:
    case Operation::send_immediate:
      return IBV_WC_SEND;
    case Operation::write:
    case Operation::write_immediate:
      return IBV_WC_RDMA_WRITE;
    case Operation::read:
      return IBV_WC_RDMA_READ;
    case Operation::compare_swap:
      return IBV_WC_COMP_SWAP;
    case Operation::fetch_add:
      return IBV_WC_FETCH_ADD;
    case Operation::atomic_write:
      return IBV_WC_ATOMIC_WRITE;
    case Operation::bind_window:
      return IBV_WC_BIND_MW;
    case Operation::local_invalidate:
      return IBV_WC_LOCAL_INV;
  }
  return IBV_WC_SEND;
}

}  // namespace

iwarp::Memory QueuePair::remote_memory(std::uint32_t stag, std::uint64_t offset,
                                       std::uint64_t length_bytes, iwarp::RemoteRight right) {
  note_communication();
  return check_remote(
      memory_.find(stag), accessor(),
      {.stag = stag, .offset = offset, .length_bytes = length_bytes, .right = right});
}

iwarp::Memory QueuePair::local_memory(const iwarp::LocalSlice& slice, bool for_writing) {
  return check_local(memory_.find(slice.lkey), domain_, slice, for_writing);
}

bool QueuePair::next_receive(iwarp::ReceiveRequest& request) {
  if (shared_receives_) return shared_receives_->take(request, holds_ ? this : nullptr);
  return receives_.take(request);
}

bool QueuePair::invalidate(std::uint32_t stag) {
  Region* region = memory_.find(stag);
  if (!region) return false;
  if (region->window) return region->window->invalidate(stag, accessor());
  if (region->stag != stag || region->domain != domain_) return false;
  constexpr std::uint32_t remote =
      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if ((region->access & remote) == 0) return false;
  return region->remote_valid.exchange(false);
}

void QueuePair::note_peer_access(const iwarp::PeerAccess& access) {
  const auto traffic = [&]() -> Traffic& {
    switch (access.right) {
      case iwarp::RemoteRight::read:
        return counters_.peer_reads;
      case iwarp::RemoteRight::atomic:
        return counters_.peer_atomics;
      default:
        return counters_.peer_writes;
    }
  };
  traffic().bytes += access.bytes;
  if (access.last) ++traffic().operations;
  if (Region* region = memory_.find(access.stag)) region->counters.add(access);
}

Accessor QueuePair::accessor() const {
  return {
      .domain = domain_, .queue_pair = handle_.qp.qp_num, .access = attributes_.qp_access_flags};
}

iwarp::Status QueuePair::carry_out_local() {
  const LocalWork work = local_work_.front();
  local_work_.pop_front();
  if (work.window) return work.window->bind(memory_, handle_.qp.qp_num, work.binding);
  return invalidate(work.binding.rkey) ? Status::success : Status::local_operation;
}

void QueuePair::complete_send(const iwarp::SendCompletion& completion) {
  if (completion.status != iwarp::Status::success && fails_later()) return hold_failed(completion);
  // It will not be carried out any more.
  if (is_local(completion.operation) && completion.status == Status::flushed) {
    local_work_.pop_front();
  }
  ibv_wc wc{};
  wc.wr_id = completion.wr_id;
  wc.status = verbs_status(completion.status);
  failed_ = failed_ || wc.status != IBV_WC_SUCCESS;
  wc.opcode = verbs_opcode(completion.operation);
  wc.byte_len = completion.length_bytes;
  wc.qp_num = handle_.qp.qp_num;
  pending_.push_back({.completion = wc, .slots = &send_slots_, .covered = completion.covered});
}

// Until its patience has ended as well: see fails_later(). The silent ones before it are done.
void QueuePair::hold_failed(const iwarp::SendCompletion& completion) {
  waiting_.hold(completion.wr_id, completion.operation);
  send_slots_.give_back(completion.covered - 1);
}

void QueuePair::complete_receive(const iwarp::ReceiveCompletion& completion) {
  note_communication();
  ibv_wc wc{};
  wc.wr_id = completion.wr_id;
  wc.status = verbs_status(completion.status);
  failed_ = failed_ || wc.status != IBV_WC_SUCCESS;
  wc.opcode = completion.from_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.byte_len = completion.length_bytes;
  wc.qp_num = handle_.qp.qp_num;
  if (completion.has_immediate) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = completion.immediate_be;
  } else if (completion.has_invalidated) {
    wc.wc_flags |= IBV_WC_WITH_INV;
    wc.invalidated_rkey = completion.invalidated_rkey;
  }
  pending_.push_back({.completion = wc,
                      .slots = &receive_slots(),
                      .solicited = completion.solicited,
                      .receive = true});
}

void QueuePair::on_peer_ready() {
  ready_notice_ = true;
  confirmed_ = true;
}

void QueuePair::on_end(iwarp::EndReason reason) {
  end_reason_ = reason;
  end_notice_ = true;
}

}  // namespace weft::device
