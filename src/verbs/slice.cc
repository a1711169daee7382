#include "weft/verbs/slice.hpp"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>

#include "weft/verbs/memory.hpp"

namespace weft::verbs {
namespace {

[[noreturn]] void beyond(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
  throw std::out_of_range(
      fmt::format("{} bytes at {} are not within {} bytes", bytes, offset, size));
}

// Parses a hexadecimal number up to ':' or the end, and removes both from `text`.
template <typename Number>
bool take(std::string_view& text, Number& value) {
  const std::string_view field = text.substr(0, text.find(':'));
  const auto [end, failed] = std::from_chars(field.data(), field.data() + field.size(), value, 16);
  if (field.empty() || failed != std::errc() || end != field.data() + field.size()) return false;
  text.remove_prefix(field.size());
  if (!text.empty()) text.remove_prefix(1);
  return true;
}

}  // namespace

LocalSlice LocalSlice::slice(std::size_t offset_bytes, std::size_t bytes) const {
  // Compared in this form because offset + bytes could overflow.
  if (bytes > sge_.length || offset_bytes > sge_.length - bytes) {
    beyond(offset_bytes, bytes, sge_.length);
  }
  return {sge_.addr + offset_bytes, static_cast<std::uint32_t>(bytes), sge_.lkey};
}

RemoteSlice RemoteSlice::slice(std::uint64_t offset_bytes, std::uint64_t bytes) const {
  if (bytes > bytes_ || offset_bytes > bytes_ - bytes) beyond(offset_bytes, bytes, bytes_);
  return {address_ + offset_bytes, bytes, rkey_};
}

std::string RemoteSlice::to_string() const {
  return fmt::format("{:x}:{:x}:{:x}", address_, bytes_, rkey_);
}

std::optional<RemoteSlice> RemoteSlice::parse(std::string_view text) {
  RemoteSlice slice;
  // All three fields and nothing behind them: a text that was cut off must not name other memory.
  if (!take(text, slice.address_) || !take(text, slice.bytes_) || !take(text, slice.rkey_) ||
      !text.empty()) {
    return std::nullopt;
  }
  return slice;
}

void MemoryRegion::out_of_range(std::size_t offset_bytes, std::size_t bytes) const {
  beyond(offset_bytes, bytes, raw_->length);
}

}  // namespace weft::verbs
