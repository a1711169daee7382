#include "weft/verbs/data_path.hpp"

#include "weft/handle.hpp"

namespace weft::verbs::detail {
namespace {

using weft::detail::throw_empty;

// The context of all empty objects. The inline functions of verbs.h call a queue's device through
// the context that the queue names, so that these functions are called instead of a device's.
ibv_context* empty_context() noexcept {
  static ibv_context context = [] {
    ibv_context made{};
    made.ops.post_send = [](ibv_qp*, ibv_send_wr*, ibv_send_wr**) -> int {
      throw_empty("weft::verbs::QueuePair");
    };
    made.ops.post_recv = [](ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) -> int {
      throw_empty("weft::verbs::QueuePair");
    };
    made.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) -> int {
      throw_empty("weft::verbs::CompletionQueue");
    };
    made.ops.post_srq_recv = [](ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) -> int {
      throw_empty("weft::verbs::SharedReceiveQueue");
    };
    return made;
  }();
  return &context;
}

template <typename Object>
Object* make_empty() noexcept {
  static Object object = [] {
    Object made{};
    made.context = empty_context();
    return made;
  }();
  return &object;
}

}  // namespace

int without_sign(int negative) noexcept {
  return -negative;
}

ibv_qp* empty_object(const ibv_qp* /*moved*/) noexcept {
  return make_empty<ibv_qp>();
}

ibv_cq* empty_object(const ibv_cq* /*moved*/) noexcept {
  return make_empty<ibv_cq>();
}

ibv_srq* empty_object(const ibv_srq* /*moved*/) noexcept {
  return make_empty<ibv_srq>();
}

}  // namespace weft::verbs::detail
