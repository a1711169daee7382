// The calls of ibv_wr_post(3): each is noted and passed on, and a complete batch is checked as the
// list of requests that it stands for.
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "check/hooks.h"
#include "check/posting.h"

namespace weft::check {
namespace {

struct Noted {
  ibv_send_wr work{};
  std::vector<ibv_sge> pieces;
};

// Between ibv_wr_start() and ibv_wr_complete() one thread uses the queue pair.
struct Batch {
  std::vector<Noted> requests;
  bool refused = false;  // the queue pair is destroyed
};

// The functions of the device, which are the same for each queue pair.
ibv_qp_ex& below() {
  static ibv_qp_ex functions{};
  return functions;
}

Batch& batch_of(ibv_qp_ex* qp) {
  static std::mutex mutex;
  static std::unordered_map<const ibv_qp_ex*, std::unique_ptr<Batch>> batches;
  const std::lock_guard lock(mutex);
  auto& batch = batches[qp];
  if (!batch) batch = std::make_unique<Batch>();
  return *batch;
}

ibv_send_wr& add(ibv_qp_ex* qp, ibv_wr_opcode opcode) {
  Noted& noted = batch_of(qp).requests.emplace_back();
  noted.work.wr_id = qp->wr_id;
  noted.work.send_flags = qp->wr_flags;
  noted.work.opcode = opcode;
  return noted.work;
}

Noted* newest(ibv_qp_ex* qp) {
  auto& requests = batch_of(qp).requests;
  return requests.empty() ? nullptr : &requests.back();
}

void set_pieces(ibv_qp_ex* qp, std::span<const ibv_sge> pieces) {
  if (Noted* request = newest(qp)) request->pieces.assign(pieces.begin(), pieces.end());
}

// The data are copied when they are given.
void set_inline(ibv_qp_ex* qp, std::span<const ibv_data_buf> pieces) {
  Noted* request = newest(qp);
  if (!request) return;
  request->work.send_flags |= IBV_SEND_INLINE;
  for (const ibv_data_buf& piece : pieces) {
    request->pieces.push_back({.addr = reinterpret_cast<std::uintptr_t>(piece.addr),
                               .length = static_cast<std::uint32_t>(piece.length),
                               .lkey = 0});
  }
}

ibv_send_wr* linked(Batch& batch) {
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    Noted& noted = batch.requests[i];
    noted.work.sg_list = noted.pieces.data();
    noted.work.num_sge = static_cast<int>(noted.pieces.size());
    noted.work.next = i + 1 < batch.requests.size() ? &batch.requests[i + 1].work : nullptr;
  }
  return batch.requests.empty() ? nullptr : &batch.requests.front().work;
}

// Calls the device, which holds a lock of the queue pair meanwhile.
template <auto member, typename... Arguments>
void pass(ibv_qp_ex* qp, Arguments... arguments) {
  if (!batch_of(qp).refused) (below().*member)(qp, arguments...);
}

// The call cannot fail: ibv_wr_complete() does.
void start(ibv_qp_ex* qp) {
  bool may_use = false;
  {
    Call call("ibv_wr_start");
    may_use = call.may_use(&qp->qp_base);
  }
  if (may_use) below().wr_start(qp);
  Batch& batch = batch_of(qp);
  batch.requests.clear();
  batch.refused = !may_use;
}

int complete(ibv_qp_ex* qp) {
  Call call("ibv_wr_complete");
  std::shared_ptr<QueuePairAccount> account;
  {
    const std::lock_guard lock(checker().mutex);
    account = checker().requests.find(&qp->qp_base);
  }
  // Taken out, because another thread's ibv_wr_start() may return before this call does.
  Batch batch;
  std::swap(batch, batch_of(qp));
  if (batch.refused) return EINVAL;
  ibv_send_wr* const first = linked(batch);
  if (!account) return below().wr_complete(qp);
  checker().polled_writes.look();
  const std::lock_guard order(account->posting);
  PostedSends posted(call, *account, first);
  const int failed = below().wr_complete(qp);
  posted.finish(failed, failed == 0 ? nullptr : first);
  return failed;
}

void hook_requests(ibv_qp_ex& qp) {
  qp.wr_send = [](ibv_qp_ex* of) {
    add(of, IBV_WR_SEND);
    pass<&ibv_qp_ex::wr_send>(of);
  };
  qp.wr_send_imm = [](ibv_qp_ex* of, std::uint32_t immediate_be) {
    add(of, IBV_WR_SEND_WITH_IMM);
    pass<&ibv_qp_ex::wr_send_imm>(of, immediate_be);
  };
  qp.wr_send_inv = [](ibv_qp_ex* of, std::uint32_t rkey) {
    add(of, IBV_WR_SEND_WITH_INV);
    pass<&ibv_qp_ex::wr_send_inv>(of, rkey);
  };
  qp.wr_rdma_write = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address) {
    add(of, IBV_WR_RDMA_WRITE).wr.rdma = {address, rkey};
    pass<&ibv_qp_ex::wr_rdma_write>(of, rkey, address);
  };
  qp.wr_rdma_write_imm = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address,
                            std::uint32_t immediate_be) {
    add(of, IBV_WR_RDMA_WRITE_WITH_IMM).wr.rdma = {address, rkey};
    pass<&ibv_qp_ex::wr_rdma_write_imm>(of, rkey, address, immediate_be);
  };
  qp.wr_rdma_read = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address) {
    add(of, IBV_WR_RDMA_READ).wr.rdma = {address, rkey};
    pass<&ibv_qp_ex::wr_rdma_read>(of, rkey, address);
  };
  qp.wr_atomic_cmp_swp = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address,
                            std::uint64_t compare, std::uint64_t swap) {
    add(of, IBV_WR_ATOMIC_CMP_AND_SWP).wr.atomic = {address, compare, swap, rkey};
    pass<&ibv_qp_ex::wr_atomic_cmp_swp>(of, rkey, address, compare, swap);
  };
  qp.wr_atomic_fetch_add = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address,
                              std::uint64_t addend) {
    add(of, IBV_WR_ATOMIC_FETCH_AND_ADD).wr.atomic = {address, addend, 0, rkey};
    pass<&ibv_qp_ex::wr_atomic_fetch_add>(of, rkey, address, addend);
  };
  qp.wr_atomic_write = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address,
                          const void* value) {
    ibv_send_wr& work = add(of, IBV_WR_ATOMIC_WRITE);
    work.wr.rdma = {address, rkey};
    work.send_flags |= IBV_SEND_INLINE;  // the value is copied
    pass<&ibv_qp_ex::wr_atomic_write>(of, rkey, address, value);
  };
  qp.wr_bind_mw = [](ibv_qp_ex* of, ibv_mw* window, std::uint32_t rkey,
                     const ibv_mw_bind_info* info) {
    add(of, IBV_WR_BIND_MW);
    pass<&ibv_qp_ex::wr_bind_mw>(of, window, rkey, info);
  };
  qp.wr_local_inv = [](ibv_qp_ex* of, std::uint32_t rkey) {
    add(of, IBV_WR_LOCAL_INV);
    pass<&ibv_qp_ex::wr_local_inv>(of, rkey);
  };
}

void hook_data(ibv_qp_ex& qp) {
  qp.wr_set_sge = [](ibv_qp_ex* of, std::uint32_t lkey, std::uint64_t address,
                     std::uint32_t length) {
    const ibv_sge piece{.addr = address, .length = length, .lkey = lkey};
    set_pieces(of, {&piece, 1});
    pass<&ibv_qp_ex::wr_set_sge>(of, lkey, address, length);
  };
  qp.wr_set_sge_list = [](ibv_qp_ex* of, std::size_t count, const ibv_sge* pieces) {
    set_pieces(of, {pieces, count});
    pass<&ibv_qp_ex::wr_set_sge_list>(of, count, pieces);
  };
  qp.wr_set_inline_data = [](ibv_qp_ex* of, void* address, std::size_t length) {
    const ibv_data_buf piece{.addr = address, .length = length};
    set_inline(of, {&piece, 1});
    pass<&ibv_qp_ex::wr_set_inline_data>(of, address, length);
  };
  qp.wr_set_inline_data_list = [](ibv_qp_ex* of, std::size_t count, const ibv_data_buf* pieces) {
    set_inline(of, {pieces, count});
    pass<&ibv_qp_ex::wr_set_inline_data_list>(of, count, pieces);
  };
}

}  // namespace

// Also for operations that the program did not ask for: the device refuses them.
void hook_batches(ibv_qp_ex& qp) {
  if (qp.wr_complete == complete) return;
  if (!below().wr_complete) below() = qp;
  hook_requests(qp);
  hook_data(qp);
  qp.wr_start = start;
  qp.wr_complete = complete;
  qp.wr_abort = [](ibv_qp_ex* of) {
    batch_of(of).requests.clear();
    pass<&ibv_qp_ex::wr_abort>(of);
  };
}

}  // namespace weft::check
