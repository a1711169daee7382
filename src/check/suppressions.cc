#include "check/suppressions.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "check/catalog.h"

namespace weft::check {
namespace {

std::string_view trimmed(std::string_view text) {
  text = text.substr(0, text.find('#'));
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool is_check(std::string_view name) {
  const auto known = rules();
  return name == "*" || std::any_of(known.begin(), known.end(),
                                    [&](const RuleText& text) { return text.name == name; });
}

bool matches(const std::string& pattern, const Frame& frame) {
  const auto fits = [&](const std::string& text) {
    return !text.empty() && fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  };
  const std::string file = frame.file.substr(frame.file.rfind('/') + 1);
  const std::string module = frame.module.substr(frame.module.rfind('/') + 1);
  return fits(frame.function) || fits(frame.file) || fits(file) || fits(frame.module) ||
         fits(module);
}

}  // namespace

std::string Suppressions::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fmt::format("{}: {}", path, std::strerror(errno));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::string wrong = parse(text);
  return wrong.empty() ? wrong : fmt::format("{}: {}", path, wrong);
}

std::string Suppressions::parse(std::string_view text) {
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.empty()) continue;
    const std::size_t colon = line.find(':');
    const std::string_view name = line.substr(0, colon);
    if (!is_check(name)) {
      return fmt::format("line {}: '{}' is no check; `weft help check` lists them", number, name);
    }
    lines_.push_back(
        {.check = std::string(name),
         .pattern = std::string(colon == std::string_view::npos ? "" : line.substr(colon + 1))});
  }
  return {};
}

bool Suppressions::covers(std::string_view check,
                          std::span<const std::vector<Frame>> stacks) const {
  return std::any_of(lines_.begin(), lines_.end(), [&](const Line& line) {
    if (line.check != "*" && line.check != check) return false;
    if (line.pattern.empty()) return true;
    return std::any_of(stacks.begin(), stacks.end(), [&](const std::vector<Frame>& frames) {
      return std::any_of(frames.begin(), frames.end(),
                         [&](const Frame& frame) { return matches(line.pattern, frame); });
    });
  });
}

}  // namespace weft::check
