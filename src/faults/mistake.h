// An error in what a user has written, and the place of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::faults {

// What is wrong, and where: offset in bytes from the beginning of the rule or list.
struct Mistake {
  std::string message;
  std::size_t offset = 0;
};

struct Word {
  std::string_view text;
  std::size_t offset = 0;
};

// Three lines: the message, `text`, and a caret below the place.
[[nodiscard]] std::string explain(const Mistake& mistake, std::string_view text);

}  // namespace weft::faults
