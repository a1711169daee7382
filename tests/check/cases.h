// The cases of the program `misuse`, by name: CHECK[.VARIANT]. Each commits one misuse, or nearly
// does.
#pragma once

#include <map>
#include <string_view>

namespace misuse {

using Cases = std::map<std::string_view, void (*)(bool bad)>;

[[nodiscard]] Cases connection_cases();
[[nodiscard]] Cases heap_cases();
[[nodiscard]] Cases object_cases();
[[nodiscard]] Cases order_cases();
[[nodiscard]] Cases queue_cases();

}  // namespace misuse
