#include "check/checker.h"

#include <fmt/format.h>

#include <utility>

namespace weft::check {

void report_accesses() {
  Checker& state = checker();
  if (must_release()) {
    state.early_accesses.release();
    state.polled_writes.release();
  }
  if (state.early_accesses.has_found()) {
    for (const Finding& found : state.early_accesses.take_findings(state.stacks)) {
      state.reporter.report(found);
    }
  }
  if (!state.polled_writes.has_found()) return;
  for (const Finding& found : state.polled_writes.take_findings(state.stacks)) {
    state.reporter.report(found);
  }
}

StackId Call::stack() {
  if (stack_ != 0) return stack_;
  Stacks& stacks = checker().stacks;
  bool is_new = false;
  stack_ = stacks.take(is_new);
  if (is_new && is_in_signal_handler(stacks.get(stack_))) {
    report(Rule::signal_handler, fmt::format("{} was called in a signal handler.", function_),
           "It was called here");
  }
  return stack_;
}

void Call::report_inherited(const Object& object) {
  report(Rule::used_in_child,
         fmt::format("{} got {}, which the parent of this process made.", function_,
                     to_string(object)),
         "It was used here", {{"It was made here", object.made}});
}

bool Call::may_use(const void* object) {
  Checker& state = checker();
  Object known;
  {
    const std::lock_guard lock(state.mutex);
    const Object* found = state.objects.find_destroyed(object);
    if (!found) found = state.objects.find(object);
    if (!found || (found->destroyed == 0 && !found->inherited)) return true;
    known = *found;
  }
  if (known.destroyed == 0) return report_inherited(known), true;
  report(Rule::destroyed_object,
         fmt::format("{} got {}, which {} has destroyed.", function_, to_string(known),
                     known.destroyer),
         "It was used here",
         {{"It was destroyed here", known.destroyed}, {"It was made here", known.made}});
  return false;
}

void Call::made(Object object) {
  const KeptErrno kept;
  object.made = stack();
  object.maker = function_;
  Checker& state = checker();
  const std::lock_guard lock(state.mutex);
  state.objects.add(std::move(object));
}

void Call::destroyed(const void* object) {
  const StackId here = stack();
  Checker& state = checker();
  const std::lock_guard lock(state.mutex);
  state.objects.destroy(object, here, function_, additions_);
}

void Call::refused(const void* object) {
  const KeptErrno kept;
  Checker& state = checker();
  Object known;
  std::vector<Object> users;
  {
    const std::lock_guard lock(state.mutex);
    const Object* found = state.objects.find(object);
    if (!found) return;
    known = *found;
    users = state.objects.users_of(object);
  }
  if (users.empty()) return;
  std::vector<Place> places;
  std::string names;
  for (const Object& user : users) {
    names += (names.empty() ? "" : ", ") + to_string(user);
    places.push_back({fmt::format("{} was made here", to_string(user)), user.made});
  }
  constexpr std::size_t most = 3;
  if (places.size() > most) places.resize(most);
  places.push_back({fmt::format("{} was made here", to_string(known)), known.made});
  report(
      Rule::still_in_use,
      fmt::format("{} was called for {}, which is used by {}.", function_, to_string(known), names),
      "It was to be destroyed here", std::move(places));
}

void Call::report(Rule rule, const std::string& what, const char* here, std::vector<Place> others) {
  std::vector<Place> places{{here, stack()}};
  for (Place& place : others) places.push_back(std::move(place));
  checker().reporter.report({.rule = rule, .what = what, .places = std::move(places)});
}

}  // namespace weft::check
