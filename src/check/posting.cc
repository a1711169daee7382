#include "check/posting.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "check/completion_checks.h"
#include "check/memory_of_requests.h"

namespace weft::check {

std::vector<ibv_sge> pieces_of(const ibv_sge* list, int count) {
  constexpr int most = 1024;
  if (!list || count <= 0 || count > most) return {};
  return {list, list + count};
}

namespace {

std::string_view name_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "Write";
    case IBV_WR_RDMA_READ:
      return "Read";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return "Atomic";
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return "Send";
    default:
      return "Request";
  }
}

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

WatchedRequest sends_of(const QueuePairAccount& account, std::uint64_t wr_id) {
  return {.queue = account.qp, .receives = false, .wr_id = wr_id};
}

// One of both is null, or the queue pair has a shared queue.
WatchedRequest receives_of(const QueuePairAccount* account, const SharedReceivesAccount* shared,
                           std::uint64_t wr_id) {
  const void* const own = account ? account->qp->srq : nullptr;
  const void* const queue = shared ? static_cast<const void*>(shared->srq) : account->qp;
  return {.queue = own ? own : queue, .receives = true, .wr_id = wr_id};
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

std::string describe(ibv_wr_opcode opcode, std::uint64_t wr_id, std::uint32_t queue_pair) {
  return fmt::format("{} {:#x} on queue pair {:#x}", name_of(opcode), wr_id, queue_pair);
}

std::string describe(const Request& request, std::uint32_t queue_pair) {
  return describe(request.opcode, request.wr_id, queue_pair);
}

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
    if (writes_locally(request.opcode)) request.writes = ranges_of(request.pieces);
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
    request.writes = ranges_of(request.pieces);
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

// --- Completions ---------------------------------------------------------------------------------

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

std::optional<Request> take_receive(QueuePairAccount& account, std::uint64_t wr_id) {
  Checker& state = checker();
  const std::lock_guard lock(state.mutex);
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

void check_receive_completion(Call& call, QueuePairAccount& account, const ibv_wc& completion) {
  const auto taken = take_receive(account, completion.wr_id);
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

std::optional<ibv_qp_type> check_completion(Call& call, const ibv_wc& completion) {
  Checker& state = checker();
  std::shared_ptr<QueuePairAccount> account;
  {
    const std::lock_guard lock(state.mutex);
    account = state.requests.find(completion.qp_num);
  }
  if (!account) return std::nullopt;
  const ibv_qp_type type = account->qp->qp_type;
  if ((completion.opcode & IBV_WC_RECV) == 0) {
    check_send_completion(call, *account, completion);
  } else {
    check_receive_completion(call, *account, completion);
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

// --- Deregistration ------------------------------------------------------------------------------

namespace {

const Request* user_of(const std::deque<Request>& requests, std::uint32_t key) {
  const auto found = std::find_if(requests.begin(), requests.end(), [&](const Request& request) {
    return std::any_of(request.pieces.begin(), request.pieces.end(), [&](const ibv_sge& piece) {
      return piece.lkey == key && piece.length != 0;
    });
  });
  return found == requests.end() ? nullptr : &*found;
}

}  // namespace

// In the error state and in RESET requests do not use their memory any more.
void check_deregistration(Call& call, const ibv_mr& mr) {
  Checker& state = checker();
  std::string what;
  std::vector<Place> places;
  {
    const std::lock_guard lock(state.mutex);
    for (const auto& account : state.requests.queue_pairs()) {
      const ibv_qp_state in = account->qp->state;
      if (in == IBV_QPS_ERR || in == IBV_QPS_RESET) continue;
      const Request* send = user_of(account->sends, mr.lkey);
      const Request* user = send ? send : user_of(account->receives, mr.lkey);
      if (!user) continue;
      what = send ? describe(*user, account->number)
                  : fmt::format("Receive {:#x} on queue pair {:#x}", user->wr_id, account->number);
      places.push_back({"The request was posted here", user->posted});
      break;
    }
    for (const auto& shared : state.requests.shared()) {
      const Request* user = user_of(shared->receives, mr.lkey);
      if (!user || !places.empty()) continue;
      what = fmt::format("Receive {:#x} on a shared receive queue", user->wr_id);
      places.push_back({"The request was posted here", user->posted});
    }
    if (places.empty()) return;
    if (const MemoryRegion* region = state.regions.find(mr.lkey)) {
      places.push_back({"The region was registered here", region->made});
      what = fmt::format("{} uses the {}, and no completion of it was polled.", what,
                         describe(*region));
    }
  }
  call.report(Rule::posted_region, what, "The region was deregistered here", std::move(places));
}

}  // namespace weft::check
