// The page of report_html.h, assembled from the files of this directory when Weft is built:
// page.html with its style and scripts, in two parts, before and after the data.
#pragma once

#include <string_view>

namespace weft::capture::page {

extern const std::string_view before_data;
extern const std::string_view after_data;

}  // namespace weft::capture::page
