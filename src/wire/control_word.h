// What two Weft devices tell each other beside the application's traffic: RDMA Writes of eight
// bytes to the STag that a hello named. The tagged offset says which word, the payload is its
// value.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace weft::wire {

// Words outside this list are ignored, so that later versions may add some.
enum class ControlWord : std::uint8_t {
  executed = 0,   // so many messages of yours were carried out and no more will be: a Terminate for
                  // the next follows, or the end of the stream
  granted = 1,    // there is a receive for the message of queue 0 with this MSN
  waiting = 2,    // the message of queue 0 with this MSN waits for such a grant
  rnr_retry = 3,  // how often my Sends are to be tried (ibv_modify_qp(3)); 7: for ever
  placed = 4,     // so many messages of yours were carried out; a proof waits behind the next one
};

inline constexpr std::uint8_t control_words = 5;
inline constexpr std::uint32_t control_word_bytes = 8;
// Offsets beyond are no control words, of whatever version.
inline constexpr std::uint64_t control_region_bytes = 4096;

[[nodiscard]] constexpr std::uint64_t control_word_offset(ControlWord word) {
  return std::uint64_t{control_word_bytes} * static_cast<std::uint8_t>(word);
}

}  // namespace weft::wire
