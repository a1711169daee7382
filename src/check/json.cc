#include "check/json.h"

#include <fmt/format.h>

#include <string_view>

namespace weft::check {
namespace {

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') {
      result += '\\';
      result += character;
    } else if (static_cast<unsigned char>(character) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(character));
    } else {
      result += character;
    }
  }
  return result + "\"";
}

std::string frame_json(const Frame& frame) {
  std::string text = fmt::format("{{\"function\": {}, \"module\": {}, \"offset\": {}",
                                 quoted(frame.function), quoted(frame.module), frame.offset);
  if (!frame.file.empty()) {
    text += fmt::format(", \"file\": {}, \"line\": {}", quoted(frame.file), frame.line);
  }
  return text + "}";
}

}  // namespace

std::string to_json(const JsonFinding& finding) {
  std::string text = fmt::format(
      " {{\"check\": {}, \"title\": {}, \"what\": {}, \"rule\": {}, \"hardware\": {}, "
      "\"times\": {}, \"stacks\": [",
      quoted(finding.rule.name), quoted(finding.rule.title), quoted(finding.what),
      quoted(finding.rule.source), quoted(finding.rule.hardware), finding.times);
  for (std::size_t i = 0; i < finding.stacks.size(); ++i) {
    text += fmt::format("{}\n  {{\"what\": {}, \"frames\": [", i == 0 ? "" : ",",
                        quoted(finding.stacks[i].first));
    std::string separator = "\n   ";
    for (const Frame& frame : *finding.stacks[i].second) {
      text += separator + frame_json(frame);
      separator = ",\n   ";
    }
    text += "]}";
  }
  return text + "]}";
}

}  // namespace weft::check
