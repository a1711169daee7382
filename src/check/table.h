// The entry to the checker: the provider's table with its checks in front.
#pragma once

#include "check/options.h"
#include "provider/table.h"

namespace weft::check {

// For a program that decides in code: these options count, and not those of the environment. False
// where with_checks() has decided otherwise before. Thread-safe.
[[nodiscard]] bool choose(const Options& options);

// `below` itself if the user did not ask for checks (WEFT_CHECK). Otherwise a copy that checks each
// call, and that gives each context operations that do so as well. Decided at the first call.
[[nodiscard]] const provider::Table& with_checks(const provider::Table& below);

}  // namespace weft::check
