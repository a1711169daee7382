// The calls of ibv_wr_post(3). They return nothing; ibv_wr_complete() returns the first error.
#include <cerrno>
#include <new>

#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/send_batch.h"

namespace weft::device {
namespace {

SendBatch& batch_of(ibv_qp_ex* qp) {
  return QueuePair::of(&qp->qp_base)->batch();
}

// One more request, and what its operation names.
template <ibv_wr_opcode opcode, std::uint64_t operation>
ibv_send_wr& add(ibv_qp_ex* qp) {
  return batch_of(qp).add(opcode, operation);
}

// Writes, reads and atomic writes name their target in the same members of ibv_send_wr.
template <ibv_wr_opcode opcode, std::uint64_t operation>
ibv_send_wr& add_rdma(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  ibv_send_wr& work = add<opcode, operation>(qp);
  work.wr.rdma = {address, rkey};
  return work;
}

// Lambdas without captures convert to the C function pointers of ibv_qp_ex. A program calls them
// through inline functions of verbs.h, without a lookup.
void set_requests(ibv_qp_ex& qp) {
  qp.wr_send = [](ibv_qp_ex* of) { add<IBV_WR_SEND, IBV_QP_EX_WITH_SEND>(of); };
  qp.wr_send_imm = [](ibv_qp_ex* of, std::uint32_t immediate_be) {
    add<IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM>(of).imm_data = immediate_be;
  };
  qp.wr_send_inv = [](ibv_qp_ex* of, std::uint32_t rkey) {
    add<IBV_WR_SEND_WITH_INV, IBV_QP_EX_WITH_SEND_WITH_INV>(of).invalidate_rkey = rkey;
  };
  qp.wr_rdma_write = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address) {
    add_rdma<IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE>(of, rkey, address);
  };
  qp.wr_rdma_write_imm = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address,
                            std::uint32_t immediate_be) {
    add_rdma<IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM>(of, rkey, address)
        .imm_data = immediate_be;
  };
  qp.wr_rdma_read = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address) {
    add_rdma<IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ>(of, rkey, address);
  };
  qp.wr_atomic_cmp_swp = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address,
                            std::uint64_t compare, std::uint64_t swap) {
    add<IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP>(of).wr.atomic = {
        address, compare, swap, rkey};
  };
  qp.wr_atomic_fetch_add = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address,
                              std::uint64_t addend) {
    add<IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD>(of).wr.atomic = {
        address, addend, 0, rkey};
  };
  qp.wr_atomic_write = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address,
                          const void* value) {
    add_rdma<IBV_WR_ATOMIC_WRITE, IBV_QP_EX_WITH_ATOMIC_WRITE>(of, rkey, address);
    // The call passes the eight bytes themselves, so they are inline data, as in ibv_post_send(3)
    // with IBV_SEND_INLINE.
    const ibv_data_buf piece{const_cast<void*>(value), sizeof(std::uint64_t)};
    batch_of(of).set_inline({&piece, 1});
  };
}

void set_local_requests(ibv_qp_ex& qp) {
  qp.wr_bind_mw = [](ibv_qp_ex* of, ibv_mw* window, std::uint32_t rkey,
                     const ibv_mw_bind_info* info) {
    ibv_send_wr& work = add<IBV_WR_BIND_MW, IBV_QP_EX_WITH_BIND_MW>(of);
    work.bind_mw.mw = window;
    work.bind_mw.rkey = rkey;
    work.bind_mw.bind_info = *info;
  };
  qp.wr_local_inv = [](ibv_qp_ex* of, std::uint32_t rkey) {
    add<IBV_WR_LOCAL_INV, IBV_QP_EX_WITH_LOCAL_INV>(of).invalidate_rkey = rkey;
  };
}

void set_setters(ibv_qp_ex& qp) {
  qp.wr_set_sge = [](ibv_qp_ex* of, std::uint32_t lkey, std::uint64_t address,
                     std::uint32_t length) {
    const ibv_sge slice{address, length, lkey};
    batch_of(of).set_slices({&slice, 1});
  };
  qp.wr_set_sge_list = [](ibv_qp_ex* of, std::size_t count, const ibv_sge* slices) {
    batch_of(of).set_slices({slices, count});
  };
  qp.wr_set_inline_data = [](ibv_qp_ex* of, void* address, std::size_t length) {
    const ibv_data_buf piece{address, length};
    batch_of(of).set_inline({&piece, 1});
  };
  qp.wr_set_inline_data_list = [](ibv_qp_ex* of, std::size_t count, const ibv_data_buf* pieces) {
    batch_of(of).set_inline({pieces, count});
  };
  qp.wr_set_xrc_srqn = [](ibv_qp_ex* of, std::uint32_t number) {
    batch_of(of).set_receive_queue(number);
  };
  qp.wr_set_ud_addr = [](ibv_qp_ex* of, ibv_ah* handle, std::uint32_t number, std::uint32_t key) {
    batch_of(of).set_address(handle, number, key);
  };
}

}  // namespace

void SendBatch::set_calls(ibv_qp_ex& qp) {
  set_requests(qp);
  set_local_requests(qp);
  set_setters(qp);
  qp.wr_start = [](ibv_qp_ex* of) { batch_of(of).start(); };
  qp.wr_complete = [](ibv_qp_ex* of) { return batch_of(of).complete(); };
  qp.wr_abort = [](ibv_qp_ex* of) { batch_of(of).abort(); };
}

}  // namespace weft::device
