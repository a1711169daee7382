// `weft top`: what the devices of this user's processes do now.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

struct TopOptions {
  bool once = false;
  bool json = false;
  bool queue_pairs = false;
  double interval_s = 1;
  std::string sort = "ops";
  std::vector<int> pids;  // empty: all
};

// The words of --sort.
[[nodiscard]] const std::vector<std::string>& top_sort_keys();

// Returns the exit status: 0; 1 where the sockets of this machine cannot be listed, and with `once`
// where no process that was named has a device; 128 and the number of the signal that ended `once`.
int top(const TopOptions& options);

}  // namespace weft::cli
