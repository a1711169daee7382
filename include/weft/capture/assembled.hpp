// Bytes put together from pieces, and what is wrong with them. Whoever takes the bytes takes the
// flaws too: a hole is zeros in the bytes and a range among the flaws, never a shorter string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/bytes.hpp"
#include "weft/export.hpp"

namespace weft::capture {

enum class Flaw : std::uint8_t {
  missing,   // no packet that carried these bytes was seen
  cut,       // one was seen, but the capture holds only its beginning
  conflict,  // two carried different bytes; the later ones are here
  dropped,   // they were seen, and let go because memory is bounded
};

[[nodiscard]] WEFT_API const char* describe(Flaw flaw);

struct FlawedRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // the first byte behind it
  Flaw flaw = Flaw::missing;

  bool operator==(const FlawedRange&) const = default;
};

class WEFT_API Assembled {
 public:
  Assembled() = default;
  explicit Assembled(Bytes bytes) : bytes_(bytes.begin(), bytes.end()) {}

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] bool whole() const { return flaws_.empty() && !open_end_; }
  // More bytes follow, and nobody knows how many.
  [[nodiscard]] bool open_end() const { return open_end_; }
  void set_open_end() { open_end_ = true; }
  // In order of `begin`; adjacent ones with the same flaw are one.
  [[nodiscard]] const std::vector<FlawedRange>& flaws() const { return flaws_; }
  // Whether all of [begin, end) is as it was sent.
  [[nodiscard]] bool whole(std::uint64_t begin, std::uint64_t end) const;
  // [begin, end), with the flaws in it, counted from `begin`. Beyond the last byte there is nothing
  // but the flaws of what was too long to be held, which belong to a part that reaches the end.
  [[nodiscard]] Assembled part(std::uint64_t begin, std::uint64_t end) const;

  void append(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void append(const Assembled& other);
  void append_flawed(std::uint64_t size, Flaw flaw);
  // Marks bytes that are there; later marks of the same place are added.
  void mark(const FlawedRange& range);
  // Zeros up to a multiple of four (RFC 4506 §3).
  void pad();
  void cut_to(std::uint64_t size) { *this = part(0, size); }

  bool operator==(const Assembled&) const = default;

 private:
  std::vector<std::byte> bytes_;
  std::vector<FlawedRange> flaws_;
  bool open_end_ = false;
};

// "whole", or "bytes 1000 to 1999 missing, 3000 to 3003 conflict".
[[nodiscard]] WEFT_API std::string describe_flaws(const Assembled& bytes);

}  // namespace weft::capture
