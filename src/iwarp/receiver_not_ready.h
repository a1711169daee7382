// What happens to a message of queue 0 that finds no receive, and how two Weft devices make that
// bearable for both. RFC 5041 §7.1 knows only one answer: the stream ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::iwarp {

inline constexpr std::uint8_t rnr_retry_infinite = 7;

// ibv_modify_qp(3), min_rnr_timer: InfiniBand's five-bit code (volume 1, section 9.7.5.2.8).
[[nodiscard]] constexpr std::uint64_t rnr_timer_ns(std::uint8_t code) {
  constexpr std::array<std::uint32_t, 32> units_of_10_us{
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::uint64_t{units_of_10_us[code % units_of_10_us.size()]} * 10'000;
}

struct ReceiverNotReady {
  std::size_t hold_bytes = 0;  // kept until a receive comes; 0: the stream ends at once
  // A message waits for `retries` times `timer_ns`. The timer is the receiver's, as InfiniBand has
  // it, the number of retries the sender's.
  std::uint64_t timer_ns = 0;
  std::uint8_t retries = rnr_retry_infinite;
};

// What the peer understands beyond the RFCs, from its hello.
struct PeerFeatures {
  bool send_immediate = false;     // an Immediate Data message may announce that of a Send
  std::uint32_t control_stag = 0;  // takes control words; 0: it does not
  // Unless 0, and with control words: of Sends that may find no receive no more than this may be
  // under way, and a larger one waits for a grant.
  std::uint32_t hold_bytes = 0;
};

}  // namespace weft::iwarp
