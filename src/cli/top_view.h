// Shows the figures of `weft top`: as a table, or as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/top_rates.h"

namespace weft::cli {

// Largest first; pid and program in ascending order. `key` is one of top_sort_keys().
void sort_devices(std::vector<TopDevice>& devices, std::string_view key);

// Lines of text with a heading. `queue_pairs`: with a line for each of them below its device.
[[nodiscard]] std::string table(const std::vector<TopDevice>& devices, bool queue_pairs);
// One line.
[[nodiscard]] std::string json(const std::vector<TopDevice>& devices);

}  // namespace weft::cli
