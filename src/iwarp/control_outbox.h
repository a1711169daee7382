// Queues control words for a Weft peer (see wire/control_word.h). They are sent as soon as there is
// room: neither a fence nor ORD nor the peer's window holds them up.
#pragma once

#include <array>
#include <cstdint>

#include "iwarp/transmitter.h"
#include "wire/control_word.h"

namespace weft::iwarp {

class ControlOutbox {
 public:
  // `stag`: the peer's, to which control words are written; 0: the peer does not understand them,
  // and put() does nothing.
  explicit ControlOutbox(std::uint32_t stag) : stag_(stag) {}

  // A word that is still due is replaced by its newer value.
  void put(wire::ControlWord word, std::uint64_t value) {
    if (stag_ == 0) return;
    const auto at = static_cast<std::uint8_t>(word);
    values_[at] = value;
    due_ |= 1U << at;
  }
  [[nodiscard]] bool due() const { return due_ != 0; }
  // Adds an FPDU for each word that is due. Not to be called between the segments of another
  // message (RFC 5041 §5.3), except right before the end of the stream.
  void build(Transmitter& out);

 private:
  std::uint32_t stag_;
  std::uint32_t due_ = 0;  // bit n: word n is due
  std::array<std::uint64_t, wire::control_words> values_{};
};

}  // namespace weft::iwarp
