// Puts the checks of programs (src/check) in the place of the device's table, as the drop-in does
// for programs of the C interface.
#include <cerrno>
#include <string>

#include "check/exit.h"
#include "check/options.h"
#include "check/table.h"
#include "provider/shared.h"
#include "verbs/program_table.h"

namespace weft {
namespace {

// A program that runs on the drop-in has one checker, and that is the drop-in's.
const provider::Table& add(const provider::Table& below) {
  const provider::Table* const drop_in = provider::drop_in_program_table();
  return drop_in ? *drop_in : check::with_checks(below);
}

int choose(const std::string& mode) {
  check::Options options = check::read_other_options();
  if (!check::read_mode(mode.empty() ? "0" : mode, options)) return EINVAL;
  if (provider::drop_in_program_table()) return 0;  // its variables have decided
  return check::choose(options) ? 0 : EBUSY;
}

// Before main(), so that the checks of the exit come after the program's own exit handlers and the
// destructors of its static objects.
[[gnu::constructor]] void install() {
  verbs::detail::install_checks({.add = add, .choose = choose});
  check::check_at_exit();
}

}  // namespace
}  // namespace weft
