// Findings that the user does not want to see, from a file.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check/symbols.h"

namespace weft::check {

// One rule per line: NAME or NAME:PATTERN. NAME is that of a check, or * for each. The pattern is
// one of fnmatch(3), for a function, source file or module of any frame of a finding's stacks. A #
// begins a comment.
class Suppressions {
 public:
  // Empty on success, else one sentence for the first line that is wrong.
  [[nodiscard]] std::string read(const std::string& path);
  // As read(), for the text of a file.
  [[nodiscard]] std::string parse(std::string_view text);
  [[nodiscard]] bool covers(std::string_view check,
                            std::span<const std::vector<Frame>> stacks) const;

 private:
  struct Line {
    std::string check;
    std::string pattern;  // empty: any
  };
  std::vector<Line> lines_;
};

}  // namespace weft::check
