#include "weft/capture/assembled.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "wire/xdr.h"

namespace weft::capture {

const char* describe(Flaw flaw) {
  switch (flaw) {
    case Flaw::missing:
      return "missing";
    case Flaw::cut:
      return "cut off by the capture";
    case Flaw::conflict:
      return "sent twice with different contents";
    case Flaw::dropped:
      return "dropped to bound memory";
  }
  return "unknown";
}

bool Assembled::whole(std::uint64_t begin, std::uint64_t end) const {
  return std::ranges::none_of(
      flaws_, [&](const FlawedRange& range) { return range.begin < end && begin < range.end; });
}

Assembled Assembled::part(std::uint64_t begin, std::uint64_t end) const {
  const bool to_the_end = end >= bytes_.size();
  end = std::min<std::uint64_t>(end, bytes_.size());
  begin = std::min(begin, end);
  Assembled part(Bytes(bytes_).subspan(to_size(begin), to_size(end - begin)));
  for (const FlawedRange& range : flaws_) {
    const auto from = std::max(range.begin, begin);
    // After the last byte there may be a flaw for bytes that were too many to hold.
    const auto to = to_the_end ? range.end : std::min(range.end, end);
    if (from < to) part.mark({from - begin, to - begin, range.flaw});
  }
  part.open_end_ = open_end_ && to_the_end;
  return part;
}

void Assembled::append(const Assembled& other) {
  const std::uint64_t at = bytes_.size();
  append(other.bytes());
  for (const FlawedRange& range : other.flaws_)
    mark({at + range.begin, at + range.end, range.flaw});
  open_end_ = open_end_ || other.open_end_;
}

// The bytes are zeros, so that the positions of everything behind them stay right.
void Assembled::append_flawed(std::uint64_t size, Flaw flaw) {
  if (size == 0) return;
  const std::uint64_t at = bytes_.size();
  bytes_.resize(to_size(at + size));
  mark({at, at + size, flaw});
}

// Inserts a flaw in order, and merges it with the previous one if both have the same kind and
// touch.
void Assembled::mark(const FlawedRange& range) {
  if (range.begin == range.end) return;
  const auto before = [](const FlawedRange& a, const FlawedRange& b) { return a.begin < b.begin; };
  const auto at = flaws_.insert(std::ranges::upper_bound(flaws_, range, before), range);
  if (at == flaws_.begin()) return;
  const auto previous = std::prev(at);
  if (previous->flaw != at->flaw || previous->end < at->begin) return;
  previous->end = std::max(previous->end, at->end);
  flaws_.erase(at);
}

void Assembled::pad() {
  bytes_.resize(to_size(wire::xdr_padded(bytes_.size())));
}

// Lists at most four flaws, so that a sentence stays short.
std::string describe_flaws(const Assembled& bytes) {
  if (bytes.whole()) return "whole";
  constexpr std::size_t shown = 4;
  const auto& flaws = bytes.flaws();
  std::string text;
  for (std::size_t i = 0; i < std::min(flaws.size(), shown); ++i) {
    const FlawedRange& range = flaws[i];
    text += fmt::format("{}{} to {} {}", i == 0 ? "bytes " : ", ", range.begin, range.end - 1,
                        describe(range.flaw));
  }
  if (flaws.size() > shown) text += fmt::format(", and {} ranges more", flaws.size() - shown);
  if (bytes.open_end()) {
    text +=
        fmt::format("{}everything behind byte {} missing", flaws.empty() ? "" : ", ", bytes.size());
  }
  return text;
}

}  // namespace weft::capture
