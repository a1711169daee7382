// Bytes that were assembled from pieces, with a list of their flaws. A hole is zeros in the bytes
// and a range in the list of flaws, never a shorter string, so offsets stay valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/bytes.hpp"
#include "weft/export.hpp"

namespace weft::capture {

enum class Flaw : std::uint8_t {
  missing,   // no packet with these bytes was captured
  cut,       // a packet was seen, but the snap length cut these bytes off
  conflict,  // two packets carried different bytes; the later ones are stored
  dropped,   // the bytes were seen, but dropped because memory is bounded
};

// Returns the flaw in words, such as "cut off by the capture". The text is in static storage.
[[nodiscard]] WEFT_API const char* describe(Flaw flaw);

struct FlawedRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // the first byte after the range
  Flaw flaw = Flaw::missing;

  bool operator==(const FlawedRange&) const = default;
};

class WEFT_API Assembled {
 public:
  // Creates an object without bytes and flaws.
  Assembled() = default;
  // Copies `bytes`, which have no flaw.
  explicit Assembled(Bytes bytes) : bytes_(bytes.begin(), bytes.end()) {}

  // Returns all bytes. The span is valid until this object is changed, moved or destroyed.
  [[nodiscard]] Bytes bytes() const { return bytes_; }
  // Returns the number of bytes, including the zeros in holes.
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  // Returns whether the bytes have no flaw and no open end.
  [[nodiscard]] bool whole() const { return flaws_.empty() && !open_end_; }
  // True if an unknown number of bytes follows the last one.
  [[nodiscard]] bool open_end() const { return open_end_; }
  // Notes that an unknown number of bytes follows the last one. whole() without a range is false
  // from then on.
  void set_open_end() { open_end_ = true; }
  // The flaws, ordered by `begin`. Adjacent ranges with the same flaw are merged.
  [[nodiscard]] const std::vector<FlawedRange>& flaws() const { return flaws_; }
  // Returns whether no byte of [begin, end) has a flaw.
  [[nodiscard]] bool whole(std::uint64_t begin, std::uint64_t end) const;
  // Returns a copy of [begin, end) with its flaws, counted from `begin`. After the last byte there
  // may be flaws for bytes that were too many to hold; they belong to a part that reaches the end.
  [[nodiscard]] Assembled part(std::uint64_t begin, std::uint64_t end) const;

  // Appends bytes without a flaw. They must not belong to this object.
  void append(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // Appends the bytes of another object with their flaws, and takes over its open end.
  void append(const Assembled& other);
  // Appends `size` zeros, which all have this flaw.
  void append_flawed(std::uint64_t size, Flaw flaw);
  // Adds a flaw to bytes that are stored; several marks of the same place accumulate.
  void mark(const FlawedRange& range);
  // Appends zeros up to a multiple of four (RFC 4506 §3).
  void pad();
  // Removes what follows the first `size` bytes: bytes, their flaws and the open end. Does nothing
  // if there are no more bytes than that.
  void cut_to(std::uint64_t size) { *this = part(0, size); }

  bool operator==(const Assembled&) const = default;

 private:
  std::vector<std::byte> bytes_;
  std::vector<FlawedRange> flaws_;
  bool open_end_ = false;
};

// Returns "whole", or for example "bytes 1000 to 1999 missing, 3000 to 3003 cut off by the
// capture". At most four ranges are listed; of further ones the text has the number.
[[nodiscard]] WEFT_API std::string describe_flaws(const Assembled& bytes);

}  // namespace weft::capture
