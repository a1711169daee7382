#include "check/table.h"

#include <cstdlib>

#include "base/kept_memory.h"
#include "check/exit.h"
#include "check/forking.h"
#include "check/hooks.h"

namespace weft::check {
namespace {

// Never destroyed, because exit handlers of the program may call verbs.
constinit Checker* the_checker = nullptr;

const provider::Table& make(const provider::Table& below) {
  const Options options = read_options();
  if (!options.on) return below;
  the_checker = new Checker(options);
  the_checker->below.table = &below;
  keep_memory_of_destroyed();
  auto* const table = new provider::Table(below);
  hook_devices(*table);
  hook_memory(*table);
  hook_queues(*table);
  hook_connections(*table);
  hook_events(*table);
  watch_forks();
  std::atexit(check_exit);
  return *table;
}

}  // namespace

Checker& checker() {
  return *the_checker;
}

Checker* checker_if_on() {
  return the_checker;
}

const provider::Table& with_checks(const provider::Table& below) {
  static const provider::Table& table = make(below);
  return table;
}

}  // namespace weft::check
