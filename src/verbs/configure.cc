#include <cerrno>
#include <string>
#include <utility>

#include "provider/options.h"
#include "provider/shared.h"
#include "verbs/failure.h"
#include "verbs/state.h"
#include "weft/device_options.hpp"
#include "weft/verbs/context.hpp"
#include "weft/verbs/device.hpp"

namespace weft {

DeviceOptions DeviceOptions::from_environment() {
  DeviceOptions options;
  const std::string wrong = provider::read_environment(options);
  if (!wrong.empty()) verbs::detail::fail(EINVAL, wrong);
  return options;
}

namespace {

// The table has no place for details, so wrong options are found before it is called.
void require_valid(const DeviceOptions& options, const char* what) {
  provider::WrongOption wrong = provider::check_options(options);
  if (wrong.sentence.empty()) return;
  verbs::detail::fail(EINVAL, what + (": " + wrong.sentence), std::move(wrong.detail));
}

}  // namespace

void configure(const DeviceOptions& options) {
  require_valid(options, "cannot configure the embedded device");
  std::string why;
  const int failed = provider::shared_embedded().configure(options, why);
  if (failed) verbs::detail::fail(failed, "cannot configure the embedded device: " + why);
}

namespace verbs {

Context open_own_device(const DeviceOptions& options) {
  require_valid(options, "cannot open a device of its own");
  const provider::Table& table = provider::shared_embedded();
  std::string why;
  ibv_context* const opened = table.open_configured(options, why);
  if (!opened) detail::fail(errno, "cannot open a device of its own: " + why);
  return Context(
      std::make_shared<detail::ContextState>(table, Backend::embedded, opened, /*own=*/true));
}

}  // namespace verbs
}  // namespace weft
