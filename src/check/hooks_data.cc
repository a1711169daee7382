// The data path: posting and polling.
#include "check/completion_checks.h"
#include "check/hooks.h"
#include "check/posting.h"
#include "check/retiring.h"

namespace weft::check {
namespace {

const ibv_context_ops& below() {
  return checker().below.operations;
}

std::shared_ptr<QueuePairAccount> account_of(const ibv_qp* qp) {
  const std::lock_guard lock(checker().mutex);
  return checker().requests.find(qp);
}

// Queue pairs that Weft's own layers made are not known, and not checked.
int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  Call call("ibv_post_send");
  if (!call.may_use(qp)) return *bad = first, EINVAL;
  const auto account = account_of(qp);
  if (!account) return below().post_send(qp, first, bad);
  checker().polled_writes.look();
  const std::lock_guard order(account->posting);
  PostedSends posted(call, *account, first);
  const int failed = below().post_send(qp, first, bad);
  posted.finish(failed, failed == 0 ? nullptr : *bad);
  return failed;
}

// A request of the send queue, with a call of its own: ibv_bind_mw(3).
int bind_mw(ibv_qp* qp, ibv_mw* window, ibv_mw_bind* bind) {
  Call call("ibv_bind_mw");
  if (!call.may_use(qp) || !call.may_use(window) || !call.may_use(bind->bind_info.mr)) {
    return EINVAL;
  }
  const auto account = account_of(qp);
  if (!account) return below().bind_mw(qp, window, bind);
  ibv_send_wr request{};
  request.wr_id = bind->wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind->send_flags;
  const std::lock_guard order(account->posting);
  PostedSends posted(call, *account, &request);
  const int failed = below().bind_mw(qp, window, bind);
  posted.finish(failed, failed == 0 ? nullptr : &request);
  return failed;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad) {
  Call call("ibv_post_recv");
  if (!call.may_use(qp)) return *bad = first, EINVAL;
  const auto account = account_of(qp);
  if (!account) return below().post_recv(qp, first, bad);
  checker().polled_writes.look();
  const std::lock_guard order(account->posting);
  PostedReceives posted(call, account.get(), nullptr, first);
  const int failed = below().post_recv(qp, first, bad);
  posted.finish(failed, failed == 0 ? nullptr : *bad);
  return failed;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) {
  Call call("ibv_post_srq_recv");
  if (!call.may_use(srq)) return *bad = first, EINVAL;
  std::shared_ptr<SharedReceivesAccount> account;
  {
    const std::lock_guard lock(checker().mutex);
    account = checker().requests.find(srq);
  }
  if (!account) return below().post_srq_recv(srq, first, bad);
  const std::lock_guard order(account->posting);
  PostedReceives posted(call, nullptr, account.get(), first);
  const int failed = below().post_srq_recv(srq, first, bad);
  posted.finish(failed, failed == 0 ? nullptr : *bad);
  return failed;
}

int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) {
  Call call("ibv_poll_cq");
  if (!call.may_use(cq)) return -1;
  checker().polled_writes.look();
  const int polled = below().poll_cq(cq, entries, completions);
  if (polled < entries) note_drained(cq);
  if (polled > 0) (void)call.stack();  // looks for a signal handler
  for (int i = 0; i < polled; ++i) {
    note_polled(cq, completions[i].status);
    if (const auto type = check_completion(call, cq, completions[i])) poison(completions[i], *type);
  }
  return polled;
}

}  // namespace

void hook_context(ibv_context* context) {
  verbs_context* const extended = context ? verbs_get_ctx(context) : nullptr;
  if (!extended || context->ops.post_send == post_send) return;
  Checker& state = checker();
  const std::lock_guard lock(state.mutex);
  if (!state.below.operations.post_send) {
    state.below.operations = context->ops;
    state.below.extended = *extended;
  }
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->ops.post_srq_recv = post_srq_recv;
  context->ops.bind_mw = bind_mw;
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = arm;
  hook_domains_of(*extended);
  hook_memory_of(*extended);
  hook_queues_of(*extended);
  hook_uses_of(*extended);
}

}  // namespace weft::check
