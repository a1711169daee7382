#include "check/table.h"

#include <mutex>
#include <optional>

#include "base/freed_objects.h"
#include "base/kept_memory.h"
#include "check/exit.h"
#include "check/forking.h"
#include "check/freed_memory.h"
#include "check/hooks.h"

namespace weft::check {
namespace {

// Never destroyed, because exit handlers of the program may call verbs.
constinit Checker* the_checker = nullptr;

struct Choice {
  std::mutex mutex;
  std::optional<Options> options;  // nothing: those of the environment
  bool made = false;
};

// Never destroyed, for the same reason.
Choice& choice() {
  static auto* const made = new Choice;
  return *made;
}

// The device may give these addresses to new objects of any kind.
void forget_freed(const void* memory, std::size_t bytes) {
  const std::lock_guard lock(the_checker->mutex);
  the_checker->objects.forget(memory, bytes);
}

const provider::Table& make(const provider::Table& below) {
  const std::lock_guard lock(choice().mutex);
  if (!choice().options) choice().options = read_options();
  choice().made = true;
  const Options& options = *choice().options;
  if (!options.on) return below;
  the_checker = new Checker(options);
  the_checker->below.table = &below;
  call_when_freed(forget_freed);
  keep_memory_of_destroyed();
  auto* const table = new provider::Table(below);
  hook_devices(*table);
  hook_memory(*table);
  hook_imports(*table);
  hook_queues(*table);
  hook_connections(*table);
  hook_events(*table);
  hook_uses(*table);
  watch_forks();
  watch_heap();
  check_at_exit();
  return *table;
}

}  // namespace

Checker& checker() {
  return *the_checker;
}

Checker* checker_if_on() {
  return the_checker;
}

bool choose(const Options& options) {
  const std::lock_guard lock(choice().mutex);
  if (!choice().made) {
    choice().options = options;
    return true;
  }
  const Options& before = *choice().options;
  return before.on == options.on && before.fatal == options.fatal;
}

const provider::Table& with_checks(const provider::Table& below) {
  static const provider::Table& table = make(below);
  return table;
}

}  // namespace weft::check
