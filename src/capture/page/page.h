// The page of report_html.h, put together from the files of this directory when Weft is built:
// page.html with its style and its scripts in place, up to where the data goes, and from there on.
#pragma once

#include <string_view>

namespace weft::capture::page {

extern const std::string_view before_data;
extern const std::string_view behind_data;

}  // namespace weft::capture::page
