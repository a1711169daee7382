#include "device/queue_pair/send_batch.h"

#include <cerrno>
#include <new>

#include "device/context.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::device {
namespace {

// InfiniBand defines operations for each transport: UD only sends, and UC has nothing that needs an
// answer.
constexpr std::uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t writes = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
constexpr std::uint64_t answered = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                   IBV_QP_EX_WITH_ATOMIC_WRITE;
constexpr std::uint64_t rights =
    IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;

}  // namespace

std::uint64_t SendBatch::offered(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
      return sends | writes | answered | rights;
    case IBV_QPT_UC:
      return sends | writes | rights;
    case IBV_QPT_UD:
      return sends;
    default:
      return 0;
  }
}

// Two locks, always in this order: the batch from start() to complete(), then the queue pair within
// post_all(). So ibv_post_send(3) of another thread may come between them.
void SendBatch::start() {
  mutex_.lock();
  requests_.clear();
  slices_.clear();
  error_ = 0;
}

// The calls in between return nothing (ibv_wr_post(3)), so their first error is reported here, and
// nothing was posted.
int SendBatch::complete() {
  int failed = error_;
  if (failed == 0 && !requests_.empty()) {
    link();
    failed = queue_pair_.post_all(requests_.front().work);
  }
  mutex_.unlock();
  return failed;
}

void SendBatch::abort() {
  mutex_.unlock();
}

// What grew meanwhile has stopped moving: the requests can now point to each other and their data.
void SendBatch::link() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    Request& request = requests_[i];
    request.work.next = i + 1 < requests_.size() ? &requests_[i + 1].work : nullptr;
    request.work.sg_list = slices_.data() + request.first_slice;
    if (!request.inline_data.empty()) {
      request.work.sg_list->addr = reinterpret_cast<std::uintptr_t>(request.inline_data.data());
    }
  }
}

void SendBatch::fail(int error) {
  if (error_ == 0) error_ = error;
}

SendBatch::Request* SendBatch::newest() {
  if (requests_.empty()) fail(EINVAL);
  return requests_.empty() ? nullptr : &requests_.back();
}

// Also after an error there is a request to fill in, because the caller cannot be stopped. It is
// not posted. wr_id and wr_flags are fields of the queue pair that the program sets before each
// call.
ibv_send_wr& SendBatch::add(ibv_wr_opcode opcode, std::uint64_t operation) {
  if ((operations_ & operation) == 0) fail(EOPNOTSUPP);
  const ibv_qp_ex& extended = *queue_pair_.extended();
  Request& request = requests_.emplace_back();
  request.first_slice = slices_.size();
  request.work.wr_id = extended.wr_id;
  request.work.send_flags = extended.wr_flags & ~unsigned{IBV_SEND_INLINE};
  request.work.opcode = opcode;
  return request.work;
}

void SendBatch::set_slices(std::span<const ibv_sge> slices) {
  Request* request = newest();
  if (!request) return;
  slices_.resize(request->first_slice);  // the last call counts
  slices_.insert(slices_.end(), slices.begin(), slices.end());
  request->work.num_sge = static_cast<int>(slices.size());
  request->work.send_flags &= ~unsigned{IBV_SEND_INLINE};
  request->inline_data.clear();
}

// Copies at once: the program may change its data as soon as the call returns (ibv_wr_post(3)).
void SendBatch::set_inline(std::span<const ibv_data_buf> pieces) {
  Request* request = newest();
  if (!request) return;
  request->inline_data.clear();
  for (const ibv_data_buf& piece : pieces) {
    const auto* at = static_cast<const std::byte*>(piece.addr);
    request->inline_data.insert(request->inline_data.end(), at, at + piece.length);
  }
  const std::size_t bytes = request->inline_data.size();
  if (bytes > queue_pair_.inline_bytes()) return fail(EINVAL);
  slices_.resize(request->first_slice);
  // The address follows in link(), since the vector of requests may still move.
  slices_.push_back({0, static_cast<std::uint32_t>(bytes), 0});
  request->work.num_sge = bytes > 0 ? 1 : 0;
  request->work.send_flags |= IBV_SEND_INLINE;
}

void SendBatch::set_receive_queue(std::uint32_t number) {
  Request* request = newest();
  if (request) request->work.qp_type.xrc.remote_srqn = number;
}

void SendBatch::set_address(ibv_ah* handle, std::uint32_t number, std::uint32_t key) {
  Request* request = newest();
  if (request) request->work.wr.ud = {handle, number, key};
}

namespace {

// The flags of send_ops_flags that the user has taken away from the device (Settings::adapter).
std::uint64_t missing_flags(const Adapter& adapter) {
  std::uint64_t missing = 0;
  if (adapter.most(Capability::atomics) == 0) {
    missing |= IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
               IBV_QP_EX_WITH_ATOMIC_WRITE;
  }
  if (adapter.most(Capability::immediates) == 0) {
    missing |= IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  }
  return missing;
}

}  // namespace

// Unknown flags are EOPNOTSUPP and not ignored, so that a program can fall back to
// ibv_create_qp(3).
ibv_qp* create_extended_queue_pair(ibv_context* verbs, ibv_qp_init_attr_ex* wanted) {
  constexpr std::uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                  IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_XRCD;
  // The receiving end of XRC has a domain in place of a protection domain; the sending end may name
  // one, and does not use it.
  const bool receives = wanted->qp_type == IBV_QPT_XRC_RECV;
  const bool names_xrc = (wanted->comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && wanted->xrcd;
  const bool names_domain = (wanted->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 && wanted->pd;
  const bool batches = (wanted->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  const std::uint64_t operations = batches ? wanted->send_ops_flags : 0;
  errno = 0;
  if ((wanted->comp_mask & ~known) != 0 ||
      (names_xrc && !receives && wanted->qp_type != IBV_QPT_XRC_SEND) ||
      ((wanted->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && wanted->create_flags != 0) ||
      (operations & ~SendBatch::offered(wanted->qp_type)) != 0 ||
      (operations & missing_flags(Context::of(verbs)->device().adapter())) != 0) {
    errno = EOPNOTSUPP;
  } else if (receives ? !names_xrc || wanted->xrcd->context != verbs
                      : !names_domain || wanted->pd->context != verbs) {
    errno = EINVAL;
  }
  if (errno != 0) return nullptr;
  try {
    // The plain attributes are the beginning of the extended ones: ibv_create_qp_ex(3).
    auto& plain = *reinterpret_cast<ibv_qp_init_attr*>(wanted);
    const auto made = QueuePair::create(*Context::of(verbs), receives ? nullptr : wanted->pd, plain,
                                        receives ? XrcHandle::of(wanted->xrcd) : nullptr);
    if (!made) return nullptr;
    if (batches) made->offer_batches(operations);
    return made->verbs();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

}  // namespace weft::device
