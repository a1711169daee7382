#include <fmt/format.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "provider/options.h"
#include "provider/shared.h"
#include "verbs/failure.h"
#include "verbs/program_table.h"
#include "verbs/state.h"
#include "weft/device_options.hpp"
#include "weft/verbs/context.hpp"
#include "weft/verbs/device.hpp"

namespace weft {
namespace {

// The table has no place for details, so wrong options are found before it is called.
void require_valid(const DeviceOptions& options, const char* what) {
  provider::WrongOption wrong = provider::check_options(options);
  if (wrong.sentence.empty()) return;
  verbs::detail::fail(EINVAL, what + (": " + wrong.sentence), std::move(wrong.detail));
}

void choose_checks(const DeviceOptions& options) {
  const int failed = verbs::detail::choose_checks(options.check);
  if (failed == 0) return;
  std::string_view why = "must be 0, 1 or fatal";
  if (failed == EBUSY) why = "the process has begun with other checks";
  if (failed == EOPNOTSUPP) why = "this library has no checks; libweft has";
  verbs::detail::fail(failed, fmt::format("check \"{}\": {}", options.check, why),
                      {.object = "device options", .attribute = "check"});
}

// Which option the device could not be opened with: whether this host has the address is known only
// then.
ErrorDetail detail_of(int failed, const DeviceOptions& options) {
  const bool address = failed == ENODEV && !options.address.empty();
  return {.object = "device options", .attribute = address ? "address" : ""};
}

}  // namespace

DeviceOptions DeviceOptions::from_environment() {
  DeviceOptions options;
  const std::string wrong = provider::read_environment(options);
  if (!wrong.empty()) verbs::detail::fail(EINVAL, wrong);
  return options;
}

void configure(const DeviceOptions& options) {
  require_valid(options, "cannot configure the embedded device");
  std::string why;
  choose_checks(options);
  const int failed = provider::shared_embedded().configure(options, why);
  if (!failed) return;
  verbs::detail::fail(failed, "cannot configure the embedded device: " + why,
                      detail_of(failed, options));
}

namespace verbs {

Context open_own_device(const DeviceOptions& options) {
  require_valid(options, "cannot open a device of its own");
  // Without a value of its own the device has the checks of the process.
  if (!options.check.empty()) choose_checks(options);
  const provider::Table& table = detail::embedded_table();
  std::string why;
  ibv_context* const opened = table.open_configured(options, why);
  if (!opened) {
    const int failed = errno;
    detail::fail(failed, "cannot open a device of its own: " + why, detail_of(failed, options));
  }
  return Context(
      std::make_shared<detail::ContextState>(table, Backend::embedded, opened, /*own=*/true));
}

}  // namespace verbs
}  // namespace weft
