// `weft trace`: joins the traces of several processes, and shows them as a page for browsers.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct TraceOptions {
  std::vector<std::string> files;  // of `weft run --trace`
  std::string output;              // the joined trace; empty: none
  std::string html;                // the page; empty: none
};

// Prints a summary where neither file is asked for. Returns the exit status: 0; 2 for files that
// cannot be read or written, or are no traces.
int trace(const TraceOptions& options);

}  // namespace weft::cli
