#include "faults/assignments.h"

#include <algorithm>
#include <string>

namespace weft::faults {
namespace {

// The offset moves with the beginning of the word, so that the caret of a message is below the word
// and not below the blanks in front of it.
Word trimmed(Word word) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t begin = std::min(word.text.find_first_not_of(blanks), word.text.size());
  word.text.remove_prefix(begin);
  word.offset += begin;
  const std::size_t last = word.text.find_last_not_of(blanks);
  word.text = word.text.substr(0, last + 1);  // npos + 1 is 0
  return word;
}

}  // namespace

std::optional<Mistake> read_assignments(std::string_view text,
                                        std::vector<Assignment>& assignments) {
  std::size_t begin = 0;
  // An empty text, and a comma at the end, still give one part. It is empty, which is a mistake.
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const Word part = trimmed({text.substr(begin, end - begin), begin});
    const std::size_t equals = part.text.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return Mistake{"must be NAME=VALUE, separated by commas", part.offset};
    }
    const Assignment found{trimmed({part.text.substr(0, equals), part.offset}),
                           trimmed({part.text.substr(equals + 1), part.offset + equals + 1})};
    const bool twice = std::ranges::any_of(
        assignments, [&](const Assignment& each) { return each.name.text == found.name.text; });
    if (twice) return Mistake{std::string(found.name.text) + "= occurs twice", found.name.offset};
    assignments.push_back(found);
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace weft::faults
