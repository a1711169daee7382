#include "check/exit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "check/checker.h"
#include "check/completion_checks.h"
#include "check/freed_memory.h"
#include "check/inside.h"
#include "check/refused_peer.h"

namespace weft::check {
namespace {

struct Group {
  Object first;
  std::uint64_t count = 0;
  std::string names;
};

// Objects of one kind that were made at one place are one finding.
void report_leaks() {
  constexpr std::uint64_t most_names = 4;
  Checker& state = checker();
  std::map<std::pair<Kind, StackId>, Group> groups;
  {
    const std::lock_guard lock(state.mutex);
    for (const Object& object : state.objects.live()) {
      if (object.implied) continue;
      Group& group = groups[{object.kind, object.made}];
      if (group.count++ == 0) group.first = object;
      if (group.count > most_names) continue;
      group.names += (group.names.empty() ? "" : ", ") + to_string(object);
    }
  }
  for (const auto& [place, group] : groups) {
    const std::string more = group.count > most_names ? ", ..." : "";
    state.reporter.report(
        {.rule = Rule::leak,
         .what = group.count == 1 ? fmt::format("{} was not destroyed.", to_string(group.first))
                                  : fmt::format("{} objects were not destroyed: {}{}.", group.count,
                                                group.names, more),
         .places = {{fmt::format("Made by {} here", group.first.maker), group.first.made}}});
  }
}

void report_unpolled() {
  Call call("exit");
  std::vector<const ibv_cq*> queues;
  {
    const std::lock_guard lock(checker().mutex);
    queues = checker().completions.all();
  }
  for (const ibv_cq* cq : queues) check_unpolled(call, const_cast<ibv_cq*>(cq));
}

// Of queue pairs that the program leaves: their destruction would have reported it.
void report_refused_peers() {
  Call call("exit");
  std::vector<ibv_qp*> left;
  {
    const std::lock_guard lock(checker().mutex);
    for (const auto& account : checker().requests.queue_pairs()) {
      left.push_back(const_cast<ibv_qp*>(account->qp));
    }
  }
  for (ibv_qp* qp : left) check_refused_peer(call, qp);
}

}  // namespace

void check_exit() {
  if (!checker_if_on() || checker().process != getpid()) return;
  // A signal handler has called exit(3) in the middle of a call of verbs, whose locks this thread
  // holds for ever.
  if (Inside::any()) {
    constexpr std::string_view text =
        "weft: check: the program ends in a signal handler that interrupted a call of verbs; what "
        "is found at the end of a program is not looked for\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
    return;
  }
  const Inside inside;
  unwatch_heap();
  checker().early_accesses.stop();
  checker().polled_writes.stop();
  report_accesses();
  report_unpolled();
  report_refused_peers();
  report_leaks();
  const int status = checker().reporter.finish();
  if (status < 0) return;
  std::fflush(nullptr);
  _exit(status);
}

void check_at_exit() {
  static const int registered = std::atexit(check_exit);
  (void)registered;
}

}  // namespace weft::check
