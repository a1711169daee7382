#include "faults/mistake.h"

namespace weft::faults {

std::string explain(const Mistake& mistake, std::string_view text) {
  std::string lines = mistake.message + "\n  ";
  lines += text;
  lines += "\n  ";
  // Tabs are kept, so that the caret is below its place.
  for (const char c : text.substr(0, mistake.offset)) lines += c == '\t' ? '\t' : ' ';
  return lines + "^";
}

}  // namespace weft::faults
