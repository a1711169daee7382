// The entry to the checker: the provider's table with its checks in front.
#pragma once

#include "provider/table.h"

namespace weft::check {

// `below` itself if the user did not ask for checks (WEFT_CHECK). Otherwise a copy that checks each
// call, and that gives each context operations that do so as well. Decided at the first call.
[[nodiscard]] const provider::Table& with_checks(const provider::Table& below);

}  // namespace weft::check
