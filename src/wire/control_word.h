// Control words: what two Weft devices exchange beside the application's traffic. A control word is
// an RDMA Write of eight bytes to the STag that the peer's hello named (Hello::control_stag), or
// with rdma_cm, which has no hello, to agreed_control_stag. The tagged offset selects the word, the
// payload is its value, in network order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace weft::wire {

// Receivers ignore words outside this list, so that later versions may add some.
enum class ControlWord : std::uint16_t {
  executed = 0,   // how many messages of the word's receiver were carried out; no more will be: a
                  // Terminate for the next message follows, or the end of the stream
  granted = 1,    // there is a receive for the message of queue 0 with this MSN
  waiting = 2,    // the message of queue 0 with this MSN waits for such a grant
  rnr_retry = 3,  // how often to retry the sender's Sends (ibv_modify_qp(3)); 7: without limit
  placed = 4,     // how many messages of the word's receiver were carried out so far; a proof waits
                  // behind the next one, or is wanted of each
  prove_all = 5,  // 1: the word's receiver should send `placed` for what it carries out, without
                  // being asked, whenever it sends something; 0: only as above again
  proves_all = 6,  // 1: every message behind `prove_all` will be proven so
};

inline constexpr std::uint8_t control_words = 7;  // those above
inline constexpr std::uint32_t control_word_bytes = 8;
// Offsets from here on are not control words, in any version.
inline constexpr std::uint64_t control_region_bytes = 4096;
// With rdma_cm, where both sides have set MpaFrame::words: no region of memory has this STag, and
// each side holds at least this many bytes of Sends that find no receive.
inline constexpr std::uint32_t agreed_control_stag = 0xFF000000;
inline constexpr std::uint32_t agreed_hold_bytes = 1U << 20;
static_assert(control_region_bytes / control_word_bytes <= 0xFFFF, "each has a value of the enum");

[[nodiscard]] constexpr std::uint64_t control_word_offset(ControlWord word) {
  return std::uint64_t{control_word_bytes} * static_cast<std::uint16_t>(word);
}
// The word at a tagged offset below control_region_bytes. Unknown words survive as values.
[[nodiscard]] constexpr ControlWord control_word_at(std::uint64_t tagged_offset) {
  return static_cast<ControlWord>(tagged_offset / control_word_bytes);
}

// The payload of a control word.
using ControlWordBytes = std::array<std::byte, control_word_bytes>;

[[nodiscard]] constexpr ControlWordBytes control_word_to_bytes(std::uint64_t value) {
  ControlWordBytes bytes{};
  store_be(bytes.data(), value);
  return bytes;
}
// `payload` has control_word_bytes.
[[nodiscard]] constexpr std::uint64_t control_word_from_bytes(Bytes payload) {
  return load_be<std::uint64_t>(payload.data());
}

}  // namespace weft::wire
