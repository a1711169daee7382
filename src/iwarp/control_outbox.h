// Control words on their way to the peer. They depend on nothing but room: no fence, ORD or window
// holds them up.
#pragma once

#include <array>
#include <cstdint>

#include "iwarp/transmitter.h"
#include "wire/control_word.h"

namespace weft::iwarp {

class ControlOutbox {
 public:
  // `stag`: where the peer takes them; 0: it does not, and all is forgotten.
  explicit ControlOutbox(std::uint32_t stag) : stag_(stag) {}

  void put(wire::ControlWord word, std::uint64_t value) {
    if (stag_ == 0) return;
    const auto at = static_cast<std::uint8_t>(word);
    values_[at] = value;
    due_ |= 1U << at;
  }
  [[nodiscard]] bool due() const { return due_ != 0; }
  // Adds an FPDU for each; never between the segments of another message.
  void build(Transmitter& out);

 private:
  std::uint32_t stag_;
  std::uint32_t due_ = 0;  // a bit for each word
  std::array<std::uint64_t, wire::control_words> values_{};
};

}  // namespace weft::iwarp
