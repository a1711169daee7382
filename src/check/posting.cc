#include "check/posting.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "check/completion_checks.h"
#include "check/describing.h"
#include "check/memory_of_requests.h"

namespace weft::check {
namespace {

bool writes_locally(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

bool has_pieces(ibv_wr_opcode opcode) {
  return opcode != IBV_WR_BIND_MW && opcode != IBV_WR_LOCAL_INV;
}

Request to_request(const ibv_send_wr& given, const QueuePairAccount& account, StackId stack) {
  Request request{.wr_id = given.wr_id, .posted = stack, .opcode = given.opcode};
  request.signaled = account.signal_all || (given.send_flags & IBV_SEND_SIGNALED) != 0;
  request.is_inline = (given.send_flags & IBV_SEND_INLINE) != 0;
  if (has_pieces(given.opcode)) request.pieces = pieces_of(given.sg_list, given.num_sge);
  if (given.opcode == IBV_WR_RDMA_WRITE || given.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
      given.opcode == IBV_WR_RDMA_READ) {
    request.remote_address = given.wr.rdma.remote_addr;
    request.rkey = given.wr.rdma.rkey;
  } else if (writes_locally(given.opcode)) {
    request.remote_address = given.wr.atomic.remote_addr;
    request.rkey = given.wr.atomic.rkey;
  }
  return request;
}

std::string_view name_of(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_RESET:
      return "RESET";
    case IBV_QPS_INIT:
      return "INIT";
    case IBV_QPS_RTR:
      return "RTR";
    case IBV_QPS_RTS:
      return "RTS";
    case IBV_QPS_SQD:
      return "SQD";
    case IBV_QPS_SQE:
      return "SQE";
    case IBV_QPS_ERR:
      return "ERR";
    default:
      return "unknown";
  }
}

// Where the queue pair was made.
Place maker_of(const ibv_qp* qp) {
  Checker& state = checker();
  const std::lock_guard lock(state.mutex);
  const Object* object = state.objects.find(qp);
  return {"The queue pair was made here", object ? object->made : 0};
}

void check_state(Call& call, const ibv_qp& qp, bool sends) {
  const ibv_qp_state state = qp.state;
  const bool wrong =
      state == IBV_QPS_RESET || (sends && (state == IBV_QPS_INIT || state == IBV_QPS_RTR));
  if (!wrong) return;
  call.report(
      Rule::wrong_state,
      fmt::format("{} on queue pair {:#x} failed in the state {}. {}.", call.function(), qp.qp_num,
                  name_of(state), sends ? "Sends need RTS" : "Receives need INIT or a later state"),
      "It was posted here", {maker_of(&qp)});
}

// The send queue is full: whether a completion will ever make room.
void check_retired(Call& call, const QueuePairAccount& account) {
  std::size_t count = 0;
  {
    const std::lock_guard lock(checker().mutex);
    count = account.sends.size();
    if (count == 0 || std::any_of(account.sends.begin(), account.sends.end(),
                                  [](const Request& request) { return request.signaled; })) {
      return;
    }
  }
  call.report(
      Rule::never_retired,
      fmt::format("{} on queue pair {:#x} failed. The queue holds {} requests, none of them "
                  "signaled.",
                  call.function(), account.number, count),
      "The request was posted here", {maker_of(account.qp)});
}

std::uint64_t bytes_of(const ibv_send_wr& given) {
  std::uint64_t bytes = 0;
  for (const ibv_sge& piece : pieces_of(given.sg_list, given.num_sge)) bytes += piece.length;
  return bytes;
}

void check_size(Call& call, const ibv_send_wr& given, const QueuePairAccount& account) {
  constexpr std::uint64_t common_inline_bytes = 256;
  const std::uint64_t bytes = has_pieces(given.opcode) ? bytes_of(given) : 0;
  if ((given.send_flags & IBV_SEND_INLINE) != 0 && bytes > common_inline_bytes) {
    call.report(
        Rule::inline_size,
        fmt::format("An inline request on queue pair {:#x} has {} bytes.", account.number, bytes),
        "It was posted here", {maker_of(account.qp)});
  }
  if (account.datagram_bytes != 0 && bytes > account.datagram_bytes) {
    call.report(Rule::datagram_size,
                fmt::format("A datagram on queue pair {:#x} has {} bytes, and the MTU of the port "
                            "is {}.",
                            account.number, bytes, account.datagram_bytes),
                "It was posted here", {maker_of(account.qp)});
  }
}

// Before the request is posted, and before it is among those that are.
void watch_memory(const Request& request, const WatchedRequest& watched, const ibv_qp* qp,
                  const std::string& name) {
  Checker& state = checker();
  state.early_accesses.posting(request.writes);
  if (!state.early_accesses.wants_more()) return;
  {
    const std::lock_guard lock(state.mutex);
    if (state.requests.any_writes(request.writes)) return;
  }
  state.early_accesses.watch(watched, qp, request.posted, name, request.writes);
}

}  // namespace

// --- Sends ---------------------------------------------------------------------------------------

PostedSends::PostedSends(Call& call, QueuePairAccount& account, const ibv_send_wr* first)
    : call_(call), account_(account), first_(first), order_(account) {
  Checker& state = checker();
  for (const ibv_send_wr* given = first; given; given = given->next) {
    Request request = to_request(*given, account, call.stack());
    if (request.is_inline) {
      request.pieces.clear();  // copied when it is posted, and lkeys do not count
    } else if (account.qp->state != IBV_QPS_ERR) {
      check_pieces(call, request.pieces,
                   {.domain = account.qp->pd,
                    .writes = writes_locally(request.opcode),
                    .request = describe(request, account.number)});
    }
    if (writes_locally(request.opcode)) {
      request.writes = written_ranges_of(request.pieces, account.qp->pd);
    }
    const bool is_filled = order_.note(request, *given);
    if (is_filled && !writes_locally(request.opcode)) {
      request.checksum = checksum_of(request.pieces);
    }
    if (request.opcode == IBV_WR_RDMA_READ && account.qp->state == IBV_QPS_RTS) {
      filled_.emplace_back(request.writes, request.remote_address, request.rkey);
    }
    if (!request.writes.empty()) {
      watch_memory(request, sends_of(account, request.wr_id), account.qp,
                   describe(request, account.number));
    }
    check_size(call, *given, account);
    const bool signaled = request.signaled;
    {
      const std::lock_guard lock(state.mutex);
      request.posted_at = state.writers.begin();
      account.sends.push_back(std::move(request));
      ++count_;
      if (signaled) state.completions.add_outstanding(account.qp->send_cq, 1);
    }
    if (signaled) check_room(call, *account.qp->send_cq);
  }
}

// The memory of Reads that were not posted becomes what it was, the newest first.
void PostedSends::restore(const ibv_send_wr* bad) {
  std::size_t reads = 0;
  for (const ibv_send_wr* given = first_; given && given != bad; given = given->next) {
    if (given->opcode == IBV_WR_RDMA_READ) ++reads;
  }
  while (filled_.size() > reads) {
    filled_.back().restore();
    filled_.pop_back();
  }
}

void PostedSends::finish(int failed, const ibv_send_wr* bad) {
  if (failed == 0) return order_.report(call_, count_);
  const KeptErrno kept;
  restore(bad);
  std::size_t posted = 0;
  std::vector<std::uint64_t> unposted;
  for (const ibv_send_wr* given = first_; given && given != bad; given = given->next) ++posted;
  {
    const std::lock_guard lock(checker().mutex);
    // Those that were not posted have written nothing.
    for (; count_ > posted && !account_.sends.empty(); --count_) {
      const std::int64_t change = account_.sends.back().signaled ? -1 : 0;
      checker().completions.add_outstanding(account_.qp->send_cq, change);
      checker().accesses.remove(account_.sends.back().access);
      unposted.push_back(account_.sends.back().wr_id);
      account_.sends.pop_back();
    }
  }
  order_.report(call_, posted);
  for (const std::uint64_t id : unposted) checker().early_accesses.ended(sends_of(account_, id));
  if (failed == EINVAL) check_state(call_, *account_.qp, true);
  if (failed == ENOMEM) check_retired(call_, account_);
}

// --- Receives ------------------------------------------------------------------------------------

PostedReceives::PostedReceives(Call& call, QueuePairAccount* account, SharedReceivesAccount* shared,
                               const ibv_recv_wr* first)
    : call_(call), account_(account), shared_(shared), first_(first) {
  const ibv_pd* const domain = account ? account->qp->pd : shared->srq->pd;
  for (const ibv_recv_wr* given = first; given; given = given->next) {
    Request request{.wr_id = given->wr_id, .posted = call.stack()};
    request.pieces = pieces_of(given->sg_list, given->num_sge);
    const std::string place = account ? fmt::format("queue pair {:#x}", account->number)
                                      : std::string("a shared receive queue");
    const std::string name = fmt::format("receive {:#x} on {}", request.wr_id, place);
    check_pieces(call, request.pieces,
                 {.domain = domain, .writes = true, .request = "R" + name.substr(1)});
    request.writes = written_ranges_of(request.pieces, domain);
    request.blocks = block_checksums(request.writes);
    if (!request.writes.empty()) {
      watch_memory(request, receives_of(account, shared, request.wr_id),
                   account ? account->qp : nullptr, name);
    }
    {
      const std::lock_guard lock(checker().mutex);
      request.posted_at = checker().writers.begin();
      queue().push_back(std::move(request));
      ++count_;
      if (account) checker().completions.add_outstanding(account->qp->recv_cq, 1);
    }
    if (account) check_room(call, *account->qp->recv_cq);
  }
}

std::deque<Request>& PostedReceives::queue() const {
  return account_ ? account_->receives : shared_->receives;
}

void PostedReceives::finish(int failed, const ibv_recv_wr* bad) {
  if (failed == 0) return;
  const KeptErrno kept;
  std::size_t posted = 0;
  std::vector<std::uint64_t> unposted;
  for (const ibv_recv_wr* given = first_; given && given != bad; given = given->next) ++posted;
  {
    const std::lock_guard lock(checker().mutex);
    for (; count_ > posted && !queue().empty(); --count_) {
      unposted.push_back(queue().back().wr_id);
      queue().pop_back();
      if (account_) checker().completions.add_outstanding(account_->qp->recv_cq, -1);
    }
  }
  for (const std::uint64_t id : unposted) {
    checker().early_accesses.ended(receives_of(account_, shared_, id));
  }
  if (failed == EINVAL && account_) check_state(call_, *account_->qp, false);
}

}  // namespace weft::check
