// Completion queues, shared receive queues, queue pairs and address handles: the calls of the
// table.
#include <algorithm>

#include "check/completion_checks.h"
#include "check/hooks.h"
#include "check/refused_peer.h"
#include "check/retiring.h"

namespace weft::check {
namespace {

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  Call call("ibv_create_comp_channel");
  if (!call.may_use(context)) return errno = EINVAL, nullptr;
  ibv_comp_channel* const channel = table_below().create_comp_channel(context);
  if (channel) call.made({.kind = Kind::channel, .handle = channel, .uses = {context}});
  return channel;
}

int destroy_comp_channel(ibv_comp_channel* channel) {
  Call call("ibv_destroy_comp_channel");
  if (!call.may_use(channel)) return EINVAL;
  const int failed = table_below().destroy_comp_channel(channel);
  if (failed == 0) call.destroyed(channel);
  if (failed == EBUSY) call.refused(channel);
  return failed;
}

void note_queue(Call& call, ibv_cq* cq) {
  if (!cq) return;
  Object object{.kind = Kind::completion_queue, .handle = cq, .uses = {cq->context}};
  if (cq->channel) object.uses.push_back(cq->channel);
  call.made(std::move(object));
  const std::lock_guard lock(checker().mutex);
  checker().completions.add(cq);
}

ibv_cq* create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel,
                  int vector) {
  Call call("ibv_create_cq");
  if (!call.may_use(context) || !call.may_use(channel)) return errno = EINVAL, nullptr;
  ibv_cq* const cq = table_below().create_cq(context, entries, cq_context, channel, vector);
  note_queue(call, cq);
  return cq;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  Call call("ibv_create_cq_ex");
  const bool in_domain = (attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
  if (!call.may_use(context) || !call.may_use(attributes->channel) ||
      (in_domain && !call.may_use(attributes->parent_domain))) {
    return errno = EINVAL, nullptr;
  }
  // What completions are matched with, also where the program does not ask for it.
  ibv_cq_init_attr_ex more = *attributes;
  more.wc_flags |= IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_BYTE_LEN;
  ibv_cq_ex* const cq = checker().below.extended.create_cq_ex(context, &more);
  if (cq) {
    note_queue(call, ibv_cq_ex_to_cq(cq));
    hook_polling(*cq, attributes->wc_flags);
  }
  return cq;
}

int destroy_cq(ibv_cq* cq) {
  Call call("ibv_destroy_cq");
  if (!call.may_use(cq)) return EINVAL;
  check_unpolled(call, cq);
  check_acknowledged(call, cq);
  check_events_acknowledged(call, cq);
  const int failed = table_below().destroy_cq(cq);
  if (failed == EBUSY) call.refused(cq);
  if (failed != 0) return failed;
  call.destroyed(cq);
  const std::lock_guard lock(checker().mutex);
  checker().completions.remove(cq);
  return failed;
}

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  Call call("ibv_create_srq");
  if (!call.may_use(pd)) return errno = EINVAL, nullptr;
  ibv_srq* const srq = table_below().create_srq(pd, attributes);
  if (!srq) return srq;
  call.made({.kind = Kind::shared_receive_queue, .handle = srq, .uses = {pd}});
  const std::lock_guard lock(checker().mutex);
  checker().requests.add(*srq, nullptr);
  return srq;
}

// verbs.h makes ordinary queues by ibv_create_srq(3): those that come here are of type XRC.
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes) {
  Call call("ibv_create_srq_ex");
  if (!call.may_use(context) || !may_use(call, *attributes)) return errno = EINVAL, nullptr;
  ibv_srq* const srq = checker().below.extended.create_srq_ex(context, attributes);
  if (!srq) return srq;
  call.made({.kind = Kind::shared_receive_queue,
             .handle = srq,
             .uses = {attributes->pd, attributes->cq}});
  const std::lock_guard lock(checker().mutex);
  checker().requests.add(*srq, attributes->cq);
  return srq;
}

int destroy_srq(ibv_srq* srq) {
  Call call("ibv_destroy_srq");
  if (!call.may_use(srq)) return EINVAL;
  check_events_acknowledged(call, srq);
  const int failed = table_below().destroy_srq(srq);
  if (failed == EBUSY) call.refused(srq);
  if (failed != 0) return failed;
  call.destroyed(srq);
  checker().early_accesses.ended_all(srq);
  const std::lock_guard lock(checker().mutex);
  checker().requests.remove(*srq);
  return failed;
}

std::shared_ptr<QueuePairAccount> account_of(const ibv_qp* qp) {
  const std::lock_guard lock(checker().mutex);
  return checker().requests.find(qp);
}

// Bytes of the largest datagram; 0 if it cannot be found out.
std::uint32_t datagram_bytes_of(const ibv_qp& qp) {
  ibv_port_attr port{};
  if (qp.qp_type != IBV_QPT_UD) return 0;
  if (checker().below.extended.query_port(qp.context, 1, &port, sizeof port) != 0) return 0;
  constexpr std::uint32_t least_mtu = 128;  // IBV_MTU_256 is 1
  return least_mtu << port.active_mtu;
}

// The device knows it in any case: rdma_get_request(3) takes the attributes from the listener.
bool has_all_signaled(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  return table_below().query_qp(qp, &attributes, IBV_QP_CAP, &initial) == 0 &&
         initial.sq_sig_all != 0;
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  Call call("ibv_create_qp");
  if (!may_use(call, pd, *attributes)) return errno = EINVAL, nullptr;
  ibv_qp* const qp = table_below().create_qp(pd, attributes);
  if (qp) note_queue_pair(call, qp);
  return qp;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  Call call("ibv_create_qp_ex");
  if (!may_use(call, context, *attributes)) return errno = EINVAL, nullptr;
  ibv_qp* const qp = checker().below.extended.create_qp_ex(context, attributes);
  if (qp) note_queue_pair(call, qp);
  return qp;
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) {
  ibv_qp_ex* const extended = table_below().qp_to_qp_ex(qp);
  if (extended) hook_batches(*extended);
  return extended;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  Call call("ibv_modify_qp");
  if (!call.may_use(qp)) return EINVAL;
  // RESET forgets the requests, and their completions: ibv_modify_qp(3).
  const bool resets = (mask & IBV_QP_STATE) != 0 && attributes->qp_state == IBV_QPS_RESET;
  const int failed = table_below().modify_qp(qp, attributes, mask);
  if (failed == 0 && resets) {
    check_unpolled(call, qp);
    if (const auto account = account_of(qp)) forget_requests(*account);
  }
  if (failed == 0 && qp->state == IBV_QPS_ERR) checker().early_accesses.ended_all(qp);
  return failed;
}

int destroy_qp(ibv_qp* qp) {
  Call call("ibv_destroy_qp");
  if (!call.may_use(qp)) return EINVAL;
  check_queue_pair_end(call, qp);
  forget_requests_of(qp);
  const int failed = table_below().destroy_qp(qp);
  // Not before: other threads may still acknowledge events, and the destruction waits for that.
  if (failed == 0) call.destroyed(qp);
  return failed;
}

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  Call call("ibv_create_ah");
  if (!call.may_use(pd)) return errno = EINVAL, nullptr;
  ibv_ah* const ah = table_below().create_ah(pd, attributes);
  if (ah) call.made({.kind = Kind::address_handle, .handle = ah, .uses = {pd}});
  return ah;
}

ibv_ah* create_ah_from_wc(ibv_pd* pd, ibv_wc* completion, ibv_grh* grh, std::uint8_t port) {
  Call call("ibv_create_ah_from_wc");
  if (!call.may_use(pd)) return errno = EINVAL, nullptr;
  ibv_ah* const ah = table_below().create_ah_from_wc(pd, completion, grh, port);
  if (ah) call.made({.kind = Kind::address_handle, .handle = ah, .uses = {pd}});
  return ah;
}

int destroy_ah(ibv_ah* ah) {
  Call call("ibv_destroy_ah");
  if (!call.may_use(ah)) return EINVAL;
  const int failed = table_below().destroy_ah(ah);
  if (failed == 0) call.destroyed(ah);
  return failed;
}

}  // namespace

bool may_use(Call& call, ibv_pd* pd, const ibv_qp_init_attr& attributes) {
  return call.may_use(pd) && call.may_use(attributes.send_cq) && call.may_use(attributes.recv_cq) &&
         call.may_use(attributes.srq);
}

bool may_use(Call& call, ibv_context* context, const ibv_qp_init_attr_ex& attributes) {
  const bool in_domain = (attributes.comp_mask & IBV_QP_INIT_ATTR_PD) != 0;
  return call.may_use(context) && (!in_domain || call.may_use(attributes.pd)) &&
         call.may_use(attributes.send_cq) && call.may_use(attributes.recv_cq) &&
         call.may_use(attributes.srq);
}

bool may_use(Call& call, const ibv_srq_init_attr_ex& attributes) {
  const auto has = [&](std::uint32_t member) { return (attributes.comp_mask & member) != 0; };
  return (!has(IBV_SRQ_INIT_ATTR_PD) || call.may_use(attributes.pd)) &&
         (!has(IBV_SRQ_INIT_ATTR_CQ) || call.may_use(attributes.cq));
}

void note_queue_pair(Call& call, ibv_qp* qp) {
  const KeptErrno kept;
  Object object{.kind = Kind::queue_pair, .handle = qp, .number = qp->qp_num};
  object.uses = {qp->pd, qp->send_cq, qp->recv_cq};
  if (qp->srq) object.uses.push_back(qp->srq);
  call.made(std::move(object));
  const std::uint32_t datagram_bytes = datagram_bytes_of(*qp);
  const bool signals_all = has_all_signaled(qp);
  const std::lock_guard lock(checker().mutex);
  checker().requests.add(*qp, signals_all)->datagram_bytes = datagram_bytes;
}

void check_queue_pair_end(Call& call, ibv_qp* qp) {
  check_receives(call, qp);
  check_refused_peer(call, qp);
  check_events_acknowledged(call, qp);
  check_unpolled(call, qp);
}

void forget_requests_of(const ibv_qp* qp) {
  if (const auto account = account_of(qp)) forget_requests(*account);
  const std::lock_guard lock(checker().mutex);
  checker().requests.remove(*qp);
}

void hook_queues(provider::Table& table) {
  table.create_comp_channel = create_comp_channel;
  table.destroy_comp_channel = destroy_comp_channel;
  table.create_cq = create_cq;
  table.destroy_cq = destroy_cq;
  table.create_srq = create_srq;
  table.destroy_srq = destroy_srq;
  table.create_qp = create_qp;
  table.qp_to_qp_ex = qp_to_qp_ex;
  table.modify_qp = modify_qp;
  table.destroy_qp = destroy_qp;
  table.create_ah = create_ah;
  table.create_ah_from_wc = create_ah_from_wc;
  table.destroy_ah = destroy_ah;
}

void hook_queues_of(verbs_context& context) {
  context.create_cq_ex = create_cq_ex;
  context.create_qp_ex = create_qp_ex;
  context.create_srq_ex = create_srq_ex;
}

}  // namespace weft::check
