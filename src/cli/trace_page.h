// The page of `weft trace --html`, around the JSON text of the trace: trace_page.html, which CMake
// embeds.
#pragma once

#include <string_view>

namespace weft::cli {

extern const std::string_view page_before_trace;
extern const std::string_view page_behind_trace;

}  // namespace weft::cli
