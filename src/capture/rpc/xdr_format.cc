#include "capture/rpc/xdr_format.h"

#include <charconv>
#include <cstddef>

#include "wire/xdr.h"

namespace weft::capture {
namespace {

// Returns the position of the bracket that closes the one at `open`.
std::size_t closing(std::string_view format, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < format.size(); ++at) {
    const char c = format[at];
    if (c == '[' || c == '(' || c == '{') ++depth;
    if (c == ']' || c == ')' || c == '}') --depth;
    if (depth == 0) return at;
  }
  return format.size();
}

// Returns the end of the first branch: a bar outside of brackets, or the end of the text.
std::size_t branch_end(std::string_view branches) {
  for (std::size_t at = 0; at < branches.size(); ++at) {
    const char c = branches[at];
    if (c == '[' || c == '(' || c == '{') at = closing(branches, at);
    if (c == '|') return at;
  }
  return branches.size();
}

bool selects(std::string_view label, std::uint32_t value) {
  if (label == "*") return true;
  std::uint32_t number = 0;
  std::from_chars(label.data(), label.data() + label.size(), number);
  return number == value;
}

// The first branch with a matching label is used. Without one the data cannot be decoded.
void skip_union(wire::XdrReader& in, std::string_view branches) {
  const std::uint32_t value = in.u32();
  while (!branches.empty()) {
    const std::size_t end = branch_end(branches);
    const std::string_view branch = branches.substr(0, end);
    const std::size_t colon = branch.find(':');
    if (selects(branch.substr(0, colon), value)) return skip_items(in, branch.substr(colon + 1));
    branches.remove_prefix(end == branches.size() ? end : end + 1);
  }
  in.fail(wire::WireError::bad_value);
}

// The count is limited by the remaining bytes, so a hostile one cannot make this loop long.
void skip_array(wire::XdrReader& in, std::string_view item) {
  const std::uint32_t items = in.count(wire::xdr_unit_bytes);
  for (std::uint32_t i = 0; i < items && in.ok(); ++i) skip_items(in, item);
}

void skip_item(wire::XdrReader& in, char type) {
  switch (type) {
    case '4':
      in.u32();
      break;
    case '8':
    case 'V':
      in.u64();
      break;
    case 'S':
    case 'K':
      in.fixed(16);
      break;
    case 'o':
      in.opaque();
      break;
    case 'b':
      skip_array(in, "4");
      break;
    case 'a':
      skip_items(in, "bo");
      break;
    case 'c':
      // change_info4: a boolean and two change attributes of eight bytes.
      in.fixed(20);
      break;
    default:
      in.fail(wire::WireError::bad_value);
  }
}

}  // namespace

// The recursion follows the nesting of the format, which is a part of the program, and not that of
// the data, so hostile data cannot exhaust the stack.
void skip_items(wire::XdrReader& in, std::string_view format) {
  for (std::size_t at = 0; at < format.size() && in.ok(); ++at) {
    const char type = format[at];
    if (type != '[' && type != '?' && type != '{') {
      skip_item(in, type);
      continue;
    }
    if (type == '?') ++at;
    const std::size_t end = closing(format, at);
    const std::string_view inner = format.substr(at + 1, end - at - 1);
    if (type == '[') skip_array(in, inner);
    if (type == '{') skip_union(in, inner);
    if (type == '?' && in.boolean()) skip_items(in, inner);
    at = end;
  }
}

}  // namespace weft::capture
