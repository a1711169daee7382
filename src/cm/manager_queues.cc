// Queue pairs, their completion queues, and shared receive queues of an id: rdma_create_qp(3),
// rdma_create_srq(3).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "cm/answer.h"
#include "cm/cm.h"
#include "cm/identifier.h"
#include "device/completion/completion_queue.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/shared_receive_queue.h"
#include "device/queue_pair/xrc_domain.h"

namespace weft::cm {
namespace {

using device::CompletionChannel;
using device::CompletionQueue;
using device::Context;
using device::ProtectionDomain;
using device::SharedReceiveQueue;

// Waits until the fetched events of the queue are acknowledged, as ibv_destroy_cq(3) does. The
// channel is destroyed after the queue that refers to it.
void destroy_pair(ibv_cq*& cq, ibv_comp_channel*& channel) {
  if (cq && CompletionQueue::of(cq)->in_use()) return;  // another queue pair uses it, too
  if (cq) {
    Context::of(cq->context)->settle_events(cq);
    --Context::of(cq->context)->objects;
    delete CompletionQueue::of(cq);
  }
  if (channel) {
    --Context::of(channel->context)->objects;
    CompletionChannel::of(channel)->release();
  }
  cq = nullptr;
  channel = nullptr;
}

// Creates a completion queue with a channel of its own, armed for the first completion:
// rdma_create_qp(3), for programs that pass none.
int create_pair(rdma_cm_id& id, std::uint32_t entries, ibv_cq*& cq, ibv_comp_channel*& channel) {
  // A queue pair that posts nothing in this direction still needs a queue of one entry.
  Context& context = *Context::of(id.verbs);
  const std::uint64_t most = context.device().adapter().most(device::Capability::completions);
  const auto size = static_cast<int>(std::clamp<std::uint64_t>(entries, 1, most));
  const int failed = context.device().fault_of(faults::Point::create_completion_queue);
  if (failed != 0) return failed;
  auto made_channel = CompletionChannel::make(id.verbs);
  if (made_channel->verbs()->fd < 0) return EMFILE;
  // As in librdmacm, the id is the context that completion events return.
  std::unique_ptr<CompletionQueue> made;
  // An error and no exception, so that the caller can take back the first of two queues.
  try {
    made = std::make_unique<CompletionQueue>(context, size, &id, made_channel.get());
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  made->request_notification(false);
  // For the queue and the channel. The context is not deleted while objects refer to it.
  context.objects += 2;
  channel = made_channel.release()->verbs();
  cq = made.release()->verbs();
  return 0;
}

void destroy_queues(rdma_cm_id& id) {
  destroy_pair(id.recv_cq, id.recv_cq_channel);
  destroy_pair(id.send_cq, id.send_cq_channel);
}

// Queues that the program does not pass are created, or are those that the id has already.
int complete_attributes(rdma_cm_id& id, ibv_qp_init_attr& attributes) {
  int failed = 0;
  if (!attributes.send_cq && !id.send_cq) {
    failed = create_pair(id, attributes.cap.max_send_wr, id.send_cq, id.send_cq_channel);
  }
  if (failed == 0 && !attributes.recv_cq && !id.recv_cq) {
    failed = create_pair(id, attributes.cap.max_recv_wr, id.recv_cq, id.recv_cq_channel);
  }
  if (!attributes.send_cq) attributes.send_cq = id.send_cq;
  if (!attributes.recv_cq) attributes.recv_cq = id.recv_cq;
  if (!attributes.srq) attributes.srq = id.srq;
  return failed;
}

// The plain attributes are the first part of the extended ones.
ibv_qp_init_attr plain(const ibv_qp_init_attr_ex& extended) {
  ibv_qp_init_attr attributes;
  std::memcpy(&attributes, &extended, sizeof attributes);
  return attributes;
}

// The device checks all features but the protection domain, as in ibv_create_qp_ex(3). The
// receiving end of an extended connection belongs to a domain that all ids share, as in librdmacm.
ibv_qp* make_queue_pair(rdma_cm_id& id, ibv_qp_init_attr_ex& extended) {
  const bool names_xrc = (extended.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && extended.xrcd;
  if (extended.qp_type == IBV_QPT_XRC_RECV && !names_xrc) {
    extended.xrcd = &Identifier::of(&id)->registry()->xrc_domain(id.verbs).xrcd;
    extended.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
  }
  if (extended.comp_mask != IBV_QP_INIT_ATTR_PD) {
    // The inline function of verbs.h would need libibverbs when compiled without optimisation.
    return verbs_get_ctx(id.verbs)->create_qp_ex(id.verbs, &extended);
  }
  ibv_qp_init_attr attributes = plain(extended);
  const auto made = device::QueuePair::create(*Context::of(id.verbs), extended.pd, attributes);
  std::memcpy(static_cast<void*>(&extended), &attributes, sizeof attributes);
  return made ? made->verbs() : nullptr;
}

int take_to(rdma_cm_id& id, ibv_qp& qp, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  int mask = 0;
  const int failed = Identifier::of(&id)->qp_attributes(attributes, mask);
  return failed != 0 ? failed : device::QueuePair::of(&qp)->modify(attributes, mask);
}

// Takes a new queue pair to INIT, where receives can be posted, as librdmacm does. An iWARP queue
// pair starts there. Datagrams need no peer, so UD goes on to RTS.
int prepare(rdma_cm_id& id, ibv_qp& qp) {
  if (qp.state != IBV_QPS_RESET) return 0;
  int failed = take_to(id, qp, IBV_QPS_INIT);
  if (qp.qp_type != IBV_QPT_UD) return failed;
  if (failed == 0) failed = take_to(id, qp, IBV_QPS_RTR);
  return failed != 0 ? failed : take_to(id, qp, IBV_QPS_RTS);
}

int create_shared(rdma_cm_id& id, ibv_pd* domain, ibv_srq_init_attr& attributes) {
  Context& context = *Context::of(id.verbs);
  int failed = SharedReceiveQueue::check(context.device(), attributes.attr);
  if (failed != 0) return failed;
  attributes.attr.max_sge = std::max(attributes.attr.max_sge, 1U);
  failed = context.device().fault_of(faults::Point::create_shared_receive_queue);
  if (failed != 0) return failed;
  auto made = std::make_unique<SharedReceiveQueue>(context, domain, attributes);
  // The domain cannot be deallocated while the queue uses it: ibv_dealloc_pd(3).
  ++ProtectionDomain::of(domain)->users;
  ++context.objects;
  id.srq = made.release()->verbs();
  id.pd = domain;
  return 0;
}

// What the program does not name is the id's: the protection domain, the completion queue, which is
// made where there is none, and the domain that all ids share. 0 or an errno value.
int create_extended(rdma_cm_id* id, ibv_srq_init_attr_ex& attributes) {
  if (!id->verbs || id->srq) return EINVAL;
  if (const int refused = device::refusal_of_xrc(Context::of(id->verbs)->device())) return refused;
  ibv_srq_init_attr_ex wanted = attributes;
  const auto names = [&wanted](std::uint32_t bit) { return (wanted.comp_mask & bit) != 0; };
  if (!names(IBV_SRQ_INIT_ATTR_PD) || !wanted.pd) wanted.pd = id->pd;
  if (!names(IBV_SRQ_INIT_ATTR_XRCD) || !wanted.xrcd) {
    wanted.xrcd = &Identifier::of(id)->registry()->xrc_domain(id->verbs).xrcd;
  }
  if (!names(IBV_SRQ_INIT_ATTR_CQ) || !wanted.cq) {
    if (!id->recv_cq) {
      const int failed = create_pair(*id, wanted.attr.max_wr, id->recv_cq, id->recv_cq_channel);
      if (failed != 0) return failed;
    }
    wanted.cq = id->recv_cq;
  }
  wanted.comp_mask |= IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  id->srq = device::create_extended_shared_queue(id->verbs, &wanted);
  if (!id->srq) {
    const int failed = errno;
    if (!id->qp) destroy_queues(*id);
    return failed;
  }
  attributes.attr = wanted.attr;
  id->pd = wanted.pd;
  return 0;
}

}  // namespace

int Manager::create_qp(rdma_cm_id* id, ibv_pd* domain, ibv_qp_init_attr* attributes) {
  ibv_qp_init_attr_ex extended{};
  std::memcpy(static_cast<void*>(&extended), attributes, sizeof *attributes);
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = domain ? domain : id->pd;
  const int result = create_qp_ex(id, &extended);
  // Only the capabilities are returned, not the completion queues of this id: programs use the same
  // attributes for the next id (cmtime does).
  attributes->cap = extended.cap;
  return result;
}

int Manager::create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* extended) {
  if (id->qp || !id->verbs) return answer(EINVAL);
  if (device::is_extended(extended->qp_type)) {
    const int refused = device::refusal_of_xrc(Context::of(id->verbs)->device());
    if (refused != 0) return answer(refused);
  }
  const bool names_domain = (extended->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 && extended->pd;
  if (!names_domain) extended->pd = id->pd;
  extended->comp_mask |= IBV_QP_INIT_ATTR_PD;
  if (!extended->pd || extended->pd->context != id->verbs) return answer(EINVAL);
  const bool other_queues =
      (id->recv_cq && extended->recv_cq && id->recv_cq != extended->recv_cq) ||
      (id->send_cq && extended->send_cq && id->send_cq != extended->send_cq);
  if (other_queues) return answer(EINVAL);

  ibv_qp_init_attr attributes = plain(*extended);
  int failed = complete_attributes(*id, attributes);
  std::memcpy(static_cast<void*>(extended), &attributes, sizeof attributes);
  ibv_qp* const made = failed == 0 ? make_queue_pair(*id, *extended) : nullptr;
  if (failed == 0) failed = made ? prepare(*id, *made) : errno;
  if (failed != 0) {
    if (made) device::QueuePair::of(made)->destroy();
    destroy_queues(*id);
    return answer(failed);
  }
  id->qp = made;
  id->pd = extended->pd;  // the receiving end of XRC has none itself
  return 0;
}

// In the child after fork(2) the objects are the parent's, and only the pointer is cleared. The
// queue pair goes first, because it uses the completion queues.
void Manager::destroy_qp(rdma_cm_id* id) {
  if (!id->qp) return;
  if (!Identifier::of(id)->abandoned()) device::QueuePair::of(id->qp)->destroy();
  id->qp = nullptr;
  if (!Identifier::of(id)->abandoned()) destroy_queues(*id);
}

int Manager::create_srq(rdma_cm_id* id, ibv_pd* domain, ibv_srq_init_attr* attributes) {
  ibv_srq_init_attr_ex extended{};
  extended.srq_context = attributes->srq_context;
  extended.attr = attributes->attr;
  extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  extended.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
  extended.pd = domain;
  const int result = create_srq_ex(id, &extended);
  attributes->attr = extended.attr;
  return result;
}

// The device has no tag matching.
int Manager::create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attributes) {
  if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0) return answer(EINVAL);
  if (attributes->srq_type == IBV_SRQT_XRC) return answer(create_extended(id, *attributes));
  if (attributes->srq_type != IBV_SRQT_BASIC) return answer(EOPNOTSUPP);
  const bool names_domain = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_PD) != 0;
  ibv_srq_init_attr basic{.srq_context = attributes->srq_context, .attr = attributes->attr};
  ibv_pd* const used = names_domain && attributes->pd ? attributes->pd : id->pd;
  if (!id->verbs || id->srq || !used || used->context != id->verbs) return answer(EINVAL);
  const int failed = create_shared(*id, used, basic);
  attributes->attr = basic.attr;
  return answer(failed);
}

// Queue pairs of other ids may use it: then it goes on, as librdmacm leaves what ibv_destroy_srq(3)
// does not destroy.
void Manager::destroy_srq(rdma_cm_id* id) {
  if (!id->srq) return;
  if (!Identifier::of(id)->abandoned() && !SharedReceiveQueue::of(id->srq)->in_use()) {
    Context& context = *Context::of(id->srq->context);
    context.settle_events(id->srq);
    --ProtectionDomain::of(id->srq->pd)->users;
    --context.objects;
    delete SharedReceiveQueue::of(id->srq);
  }
  id->srq = nullptr;
  // Those of an extended connection, whose queue pair went first.
  if (!id->qp && !Identifier::of(id)->abandoned()) destroy_queues(*id);
}

int Manager::init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask) {
  return answer(Identifier::of(id)->qp_attributes(*attributes, *mask));
}

}  // namespace weft::cm
