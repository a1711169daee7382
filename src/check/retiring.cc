#include "check/retiring.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "check/describing.h"
#include "check/memory_of_requests.h"
#include "check/order.h"

namespace weft::check {
namespace {

// Takes the requests that the completion retires: unsignaled ones in front of it, and its own. A
// failure may be that of an unsignaled request, so it is found by its number.
std::vector<Request> take_sends(QueuePairAccount& account, const ibv_wc& completion) {
  const std::lock_guard lock(checker().mutex);
  const auto ends = [&](const Request& request) {
    if (completion.status == IBV_WC_SUCCESS) return request.signaled;
    return request.wr_id == completion.wr_id;
  };
  const auto own = std::find_if(account.sends.begin(), account.sends.end(), ends);
  if (own == account.sends.end()) return {};
  std::vector<Request> taken(account.sends.begin(), own + 1);
  const auto signaled = std::count_if(taken.begin(), taken.end(),
                                      [](const Request& request) { return request.signaled; });
  checker().completions.add_outstanding(account.qp->send_cq, -signaled);
  account.sends.erase(account.sends.begin(), own + 1);
  for (const Request& request : taken) {
    checker().writers.end(request.writes);
    checker().accesses.remove(request.access);
  }
  return taken;
}

void check_unchanged(Call& call, const Request& request, std::uint32_t queue_pair) {
  if (!request.checksum) return;
  const auto now = checksum_of(request.pieces);
  if (!now || *now == *request.checksum) return;
  call.report(
      Rule::changed_send,
      fmt::format("The memory of {} was changed between its post and the poll that returned "
                  "its completion.",
                  describe(request, queue_pair)),
      "Its completion was polled here", {{"It was posted here", request.posted}});
}

void check_failure(Call& call, const Request& request, const ibv_wc& completion) {
  if (completion.status == IBV_WC_RNR_RETRY_EXC_ERR) {
    call.report(Rule::too_few_receives,
                fmt::format("{} found no receive at the peer, and failed after its last retry.",
                            describe(request, completion.qp_num)),
                "Its completion was polled here", {{"It was posted here", request.posted}});
  }
  if (completion.status != IBV_WC_REM_ACCESS_ERR) return;
  call.report(
      Rule::remote_refused,
      fmt::format("{} to {:#x} with rkey {:#x} was refused by the peer.",
                  describe(request, completion.qp_num), request.remote_address, request.rkey),
      "Its completion was polled here", {{"It was posted here", request.posted}});
}

void check_send_completion(Call& call, QueuePairAccount& account, const ibv_wc& completion) {
  const std::vector<Request> taken = take_sends(account, completion);
  // Threads that poll at once may come here in another order than the completions.
  checker().early_accesses.ended(sends_of(account, completion.wr_id));
  for (const Request& request : taken) {
    if (request.writes.empty()) continue;
    checker().early_accesses.ended(sends_of(account, request.wr_id));
  }
  if (completion.status == IBV_WC_WR_FLUSH_ERR) return;
  for (const Request& request : taken) check_unchanged(call, request, account.number);
  if (!taken.empty() && completion.status != IBV_WC_SUCCESS) {
    check_failure(call, taken.back(), completion);
  }
}

// Nothing if it is not known. Of several with one number it may be another one than that which has
// completed: completions of a shared queue, and those that several threads poll, come in any order.
std::optional<Request> take_receive(std::deque<Request>& receives, bool& ambiguous,
                                    std::uint64_t wr_id) {
  const auto is_it = [&](const Request& request) { return request.wr_id == wr_id; };
  const auto own = std::find_if(receives.begin(), receives.end(), is_it);
  if (own == receives.end()) return std::nullopt;
  ambiguous = ambiguous || std::any_of(own + 1, receives.end(), is_it);
  Request taken = std::move(*own);
  receives.erase(own);
  taken.ended_at = checker().writers.end(taken.writes);
  if (ambiguous) taken.blocks.clear();
  return taken;
}

// A receive of type XRC, of which only the completion queue is known: several shared queues may
// have it, and a receive with this number each. Then none of these is looked at any more.
std::optional<Request> take_extended(const ibv_cq* cq, std::uint64_t wr_id) {
  std::optional<Request> taken;
  for (const auto& shared : checker().requests.shared()) {
    if (shared->completions != cq) continue;
    if (!taken) {
      taken = take_receive(shared->receives, shared->ambiguous, wr_id);
      continue;
    }
    for (Request& request : shared->receives) {
      if (request.wr_id != wr_id) continue;
      checker().writers.end(request.writes);
      request = {.wr_id = wr_id, .posted = request.posted};
    }
  }
  return taken;
}

std::optional<Request> take_receive(QueuePairAccount& account, const ibv_cq* cq,
                                    std::uint64_t wr_id) {
  Checker& state = checker();
  const std::lock_guard lock(state.mutex);
  if (account.qp->qp_type == IBV_QPT_XRC_RECV) return take_extended(cq, wr_id);
  if (account.qp->srq) {
    const auto shared = state.requests.find(account.qp->srq);
    return shared ? take_receive(shared->receives, shared->ambiguous, wr_id) : std::nullopt;
  }
  auto taken = take_receive(account.receives, account.ambiguous, wr_id);
  if (taken) state.completions.add_outstanding(account.qp->recv_cq, -1);
  return taken;
}

// The bytes behind the message, which nothing but the program may have changed.
void check_receive_unchanged(Call& call, const Request& request, const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) return;
  // The data of a Write are not in the receive.
  const bool placed = completion.opcode == IBV_WC_RECV;
  const auto changed = changed_behind(request.writes, request.blocks,
                                      placed ? std::uint64_t{completion.byte_len} : 0);
  if (!changed || may_be_written_by_others(request)) return;
  call.report(
      Rule::changed_receive,
      fmt::format("The memory of receive {:#x} on queue pair {:#x} was changed at {:#x}, behind "
                  "the end of its message, between its post and the poll that returned its "
                  "completion.",
                  completion.wr_id, completion.qp_num, *changed),
      "Its completion was polled here", {{"It was posted here", request.posted}});
}

void check_receive_completion(Call& call, QueuePairAccount& account, const ibv_cq* cq,
                              const ibv_wc& completion) {
  const auto taken = take_receive(account, cq, completion.wr_id);
  if (completion.status == IBV_WC_SUCCESS) note_answer(account);
  checker().early_accesses.ended(receives_of(&account, nullptr, completion.wr_id));
  if (completion.status == IBV_WC_SUCCESS) checker().polled_writes.received();
  if (taken) check_receive_unchanged(call, *taken, completion);
  if (!taken || completion.status != IBV_WC_LOC_LEN_ERR) return;
  std::uint64_t bytes = 0;
  for (const ibv_sge& piece : taken->pieces) bytes += piece.length;
  call.report(
      Rule::short_receive,
      fmt::format("Receive {:#x} on queue pair {:#x} has {} bytes, and a larger message came "
                  "for it.",
                  completion.wr_id, account.number, bytes),
      "Its completion was polled here", {{"It was posted here", taken->posted}});
}

}  // namespace

std::optional<ibv_qp_type> check_completion(Call& call, const ibv_cq* cq,
                                            const ibv_wc& completion) {
  Checker& state = checker();
  std::shared_ptr<QueuePairAccount> account;
  {
    const std::lock_guard lock(state.mutex);
    account = state.requests.find(completion.qp_num);
  }
  if (!account) return std::nullopt;
  const ibv_qp_type type = account->qp->qp_type;
  const bool is_send = (completion.opcode & IBV_WC_RECV) == 0;
  {
    const std::lock_guard lock(state.mutex);
    (is_send ? account->settled_sends : account->settled_receives).add(completion.status);
  }
  if (is_send) {
    check_send_completion(call, *account, completion);
  } else {
    check_receive_completion(call, *account, cq, completion);
  }
  return type;
}

void forget_requests(QueuePairAccount& account) {
  checker().early_accesses.ended_all(account.qp);
  const std::lock_guard lock(checker().mutex);
  CompletionAccounts& completions = checker().completions;
  const auto signaled = std::count_if(account.sends.begin(), account.sends.end(),
                                      [](const Request& request) { return request.signaled; });
  completions.add_outstanding(account.qp->send_cq, -signaled);
  completions.add_outstanding(account.qp->recv_cq,
                              -static_cast<std::int64_t>(account.receives.size()));
  // Until now they may have written.
  for (const Request& request : account.sends) {
    checker().writers.end(request.writes);
    checker().accesses.remove(request.access);
  }
  account.peer.reset();
  for (const Request& request : account.receives) checker().writers.end(request.writes);
  account.sends.clear();
  account.receives.clear();
}

}  // namespace weft::check
