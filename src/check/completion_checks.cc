#include "check/completion_checks.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "weft/counters.hpp"

namespace weft::check {
namespace {

// The place where an object was made.
Place maker_of(const void* handle, const char* what) {
  const std::lock_guard lock(checker().mutex);
  const Object* object = checker().objects.find(handle);
  return {what, object ? object->made : 0};
}

std::string describe(const void* handle) {
  const std::lock_guard lock(checker().mutex);
  const Object* object = checker().objects.find(handle);
  return object ? to_string(*object) : "a completion queue";
}

bool read(ibv_cq* cq, CompletionQueueCounters& counters) {
  return checker().below.table->read_cq_counters(cq, &counters) == 0;
}

Completions to_completions(const StatusCounts& counts) {
  return {.count = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}),
          .flushed = counts[IBV_WC_WR_FLUSH_ERR]};
}

// Completions that are in the queue now.
std::uint64_t waiting_in(ibv_cq* cq) {
  CompletionQueueCounters counters;
  if (!read(cq, counters)) return 0;
  const std::uint64_t made = to_completions(counters.completions).count;
  const std::lock_guard lock(checker().mutex);
  const CompletionAccount* const account = checker().completions.find(cq);
  const std::uint64_t gone = counters.polled + (account ? account->dropped : 0);
  return made > gone ? made - gone : 0;
}

}  // namespace

void check_room(Call& call, const ibv_cq& cq) {
  std::int64_t outstanding = 0;
  {
    const std::lock_guard lock(checker().mutex);
    outstanding = checker().completions.add_outstanding(&cq, 0);
  }
  if (outstanding <= cq.cqe) return;
  call.report(Rule::queue_overrun,
              fmt::format("{} holds {} completions, and with this request {} may come before the "
                          "next poll.",
                          describe(&cq), cq.cqe, outstanding),
              "The request was posted here", {maker_of(&cq, "The completion queue was made here")});
}

void note_polled(const ibv_cq* cq, ibv_wc_status status) {
  const std::lock_guard lock(checker().mutex);
  CompletionAccount* const account = checker().completions.find(cq);
  if (!account) return;
  if (status != IBV_WC_WR_FLUSH_ERR) ++account->polled;
  // The oldest come first, so that those from before the arming are taken before later ones.
  if (account->undrained > 0) --account->undrained;
}

void note_drained(const ibv_cq* cq) {
  const std::lock_guard lock(checker().mutex);
  if (CompletionAccount* const account = checker().completions.find(cq)) account->undrained = 0;
}

void note_armed(Call& call, ibv_cq* cq) {
  const std::uint64_t waiting = waiting_in(cq);
  const StackId stack = call.stack();
  const std::lock_guard lock(checker().mutex);
  CompletionAccount* const account = checker().completions.find(cq);
  if (!account) return;
  account->undrained = waiting;
  account->armed = stack;
}

void note_event(const ibv_cq* cq) {
  const std::lock_guard lock(checker().mutex);
  if (CompletionAccount* const account = checker().completions.find(cq)) ++account->events;
}

void note_acknowledged(const ibv_cq* cq, unsigned events) {
  const std::lock_guard lock(checker().mutex);
  CompletionAccount* const account = checker().completions.find(cq);
  if (account) account->acknowledged += events;
}

// Completions that were in the queue when it was armed raise no event.
void check_wait(const ibv_comp_channel* channel) {
  std::vector<CompletionAccount> accounts;
  {
    const std::lock_guard lock(checker().mutex);
    accounts = checker().completions.of(channel);
  }
  for (const CompletionAccount& account : accounts) {
    if (account.undrained == 0) continue;
    Call call("ibv_get_cq_event");
    call.report(
        Rule::not_drained,
        fmt::format("{} still holds {} completion{} from before it was armed, which raise "
                    "no event, and the program waits for one.",
                    describe(account.cq), account.undrained, account.undrained == 1 ? "" : "s"),
        "It waits here", {{"The queue was armed here", account.armed}});
  }
}

namespace {

void report_unpolled(Call& call, const ibv_cq* cq, std::uint64_t missed, const std::string& of) {
  if (missed == 0) return;
  call.report(Rule::never_polled,
              fmt::format("{} of {}{} {} never polled, before {}.",
                          missed == 1 ? "One completion" : fmt::format("{} completions", missed),
                          describe(cq), of, missed == 1 ? "was" : "were", call.function()),
              "They are dropped here", {maker_of(cq, "The completion queue was made here")});
}

// With the mutex. Returns how many completions a queue pair drops from the queue, but for those of
// flushed requests. `settled` is what was polled or dropped before; another thread may have polled
// since `made` was read.
std::uint64_t drop(const ibv_cq* cq, const Completions& made, Completions& settled) {
  if (made.count <= settled.count) return 0;
  const Completions before = std::exchange(settled, made);
  const std::uint64_t missed = made.not_flushed() - before.not_flushed();
  CompletionAccount* const account = checker().completions.find(cq);
  if (!account) return 0;
  account->dropped += made.count - before.count;
  account->given_up += missed;
  return missed;
}

}  // namespace

void check_unpolled(Call& call, ibv_cq* cq) {
  CompletionQueueCounters counters;
  if (!read(cq, counters)) return;
  const std::uint64_t made = to_completions(counters.completions).not_flushed();
  std::uint64_t missed = 0;
  {
    const std::lock_guard lock(checker().mutex);
    CompletionAccount* const account = checker().completions.find(cq);
    if (!account || made <= account->polled + account->given_up) return;
    missed = made - account->polled - account->given_up;
    account->given_up += missed;
  }
  report_unpolled(call, cq, missed, "");
}

// Other queue pairs may share its completion queues: their completions stay. A queue pair of XRC
// has only one of both queues.
void check_unpolled(Call& call, ibv_qp* qp) {
  QueuePairCounters counters;
  if (checker().below.table->read_qp_counters(qp, &counters) != 0) return;
  std::uint64_t sends = 0;
  std::uint64_t receives = 0;
  {
    const std::lock_guard lock(checker().mutex);
    const auto account = checker().requests.find(qp);
    if (!account) return;
    if (qp->send_cq) {
      sends = drop(qp->send_cq, to_completions(counters.send_completions), account->settled_sends);
    }
    if (qp->recv_cq) {
      receives = drop(qp->recv_cq, to_completions(counters.receive_completions),
                      account->settled_receives);
    }
  }
  const std::string of = fmt::format(" for queue pair {:#x}", qp->qp_num);
  if (qp->send_cq == qp->recv_cq) return report_unpolled(call, qp->send_cq, sends + receives, of);
  report_unpolled(call, qp->send_cq, sends, of);
  report_unpolled(call, qp->recv_cq, receives, of);
}

namespace {

// Another thread may be about to acknowledge. `missing` returns how many events are not.
template <typename Missing>
void await_acknowledgements(Call& call, const void* object, Missing missing) {
  using clock = std::chrono::steady_clock;
  const auto until = clock::now() + std::chrono::seconds(1);
  std::uint64_t count = 0;
  while (true) {
    {
      const std::lock_guard lock(checker().mutex);
      count = missing();
    }
    if (count == 0) return;
    if (clock::now() >= until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  call.report(Rule::unacknowledged_event,
              fmt::format("{} of the events of {} {} not acknowledged, and {} waits for that.",
                          count == 1 ? "One" : std::to_string(count), describe(object),
                          count == 1 ? "was" : "were", call.function()),
              "It is destroyed here", {maker_of(object, "It was made here")});
}

}  // namespace

void check_acknowledged(Call& call, const ibv_cq* cq) {
  await_acknowledgements(call, cq, [cq]() -> std::uint64_t {
    const CompletionAccount* const account = checker().completions.find(cq);
    if (!account || account->events <= account->acknowledged) return 0;
    return account->events - account->acknowledged;
  });
}

void check_events_acknowledged(Call& call, const void* object) {
  await_acknowledgements(call, object, [object] { return checker().events.open(object); });
  const std::lock_guard lock(checker().mutex);
  checker().events.forget(object);
}

void check_receives(Call& call, ibv_qp* qp) {
  QueuePairCounters counters;
  if (checker().below.table->read_qp_counters(qp, &counters) != 0 || counters.rnr_waits == 0)
    return;
  constexpr double ns_per_ms = 1e6;
  call.report(Rule::too_few_receives,
              fmt::format("{} message{} for {} found no receive, and waited for one {:.3f} ms in "
                          "all.",
                          counters.rnr_waits, counters.rnr_waits == 1 ? "" : "s", describe(qp),
                          static_cast<double>(counters.rnr_wait_ns) / ns_per_ms),
              "The queue pair is destroyed here", {maker_of(qp, "It was made here")});
}

bool is_defined(const ibv_wc& completion, ibv_qp_type type, Field field) {
  if (completion.status != IBV_WC_SUCCESS) return false;
  switch (field) {
    case Field::opcode:
    case Field::wc_flags:
      return true;
    case Field::byte_len:
      return completion.opcode != IBV_WC_SEND && completion.opcode != IBV_WC_RDMA_WRITE;
    case Field::imm_data:
      return (completion.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) != 0;
    case Field::src_qp:
    case Field::slid:
    case Field::sl:
    case Field::dlid_path_bits:
      return type != IBV_QPT_RC && type != IBV_QPT_UC;
  }
  return true;
}

void poison(ibv_wc& completion, ibv_qp_type type) {
  ibv_wc unset;
  std::memset(static_cast<void*>(&unset), undefined_byte, sizeof unset);
  const auto keep = [&](Field field, auto ibv_wc::*member) {
    if (is_defined(completion, type, field)) unset.*member = completion.*member;
  };
  unset.wr_id = completion.wr_id;
  unset.status = completion.status;
  unset.vendor_err = completion.vendor_err;
  unset.qp_num = completion.qp_num;
  keep(Field::opcode, &ibv_wc::opcode);
  keep(Field::byte_len, &ibv_wc::byte_len);
  keep(Field::imm_data, &ibv_wc::imm_data);
  keep(Field::wc_flags, &ibv_wc::wc_flags);
  keep(Field::src_qp, &ibv_wc::src_qp);
  keep(Field::slid, &ibv_wc::slid);
  keep(Field::sl, &ibv_wc::sl);
  keep(Field::dlid_path_bits, &ibv_wc::dlid_path_bits);
  if (completion.status == IBV_WC_SUCCESS) unset.pkey_index = completion.pkey_index;
  completion = unset;
}

}  // namespace weft::check
