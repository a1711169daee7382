#include "verbs/program_table.h"

#include <cerrno>

#include "base/simulated_kernel.h"
#include "provider/shared.h"

namespace weft::verbs::detail {
namespace {

constinit Checks installed{};

}  // namespace

void install_checks(const Checks& checks) {
  installed = checks;
}

const provider::Table& embedded_table() {
  const provider::Table& below = provider::shared_embedded();
  // Where the drop-in is loaded, the checks are in its table, and that has another copy of what a
  // simulation replaces.
  if (SimulatedKernel::current()) [[unlikely]]
    return below;
  return installed.add ? installed.add(below) : below;
}

int choose_checks(const std::string& mode) {
  if (installed.choose) return installed.choose(mode);
  return mode.empty() || mode == "0" ? 0 : EOPNOTSUPP;
}

}  // namespace weft::verbs::detail
