// The table that a program's own calls go through. libweft adds the checks of programs (src/check)
// to that of the embedded device; other libraries that contain these layers, such as the drop-in's
// rsockets, leave it as it is.
#pragma once

#include <string>

#include "provider/table.h"

namespace weft::verbs::detail {

struct Checks {
  // The table with checks on top, or `below` itself. Always the same one.
  const provider::Table& (*add)(const provider::Table& below);
  // Before the first add(): the value of DeviceOptions::check. 0; EINVAL: there is no such value;
  // EBUSY: another one is in place.
  int (*choose)(const std::string& mode);
};

// To be called before main().
void install_checks(const Checks& checks);

// The embedded device's table, with the checks that are installed.
[[nodiscard]] const provider::Table& embedded_table();
// As Checks::choose. EOPNOTSUPP if none are installed and some are wanted.
[[nodiscard]] int choose_checks(const std::string& mode);

}  // namespace weft::verbs::detail
