// Settings for messages of queue 0 that find no receive ("receiver not ready").
//
// RFC 5041 §7.1 knows only one outcome: the stream ends. InfiniBand's retries it, and programs
// written for it rely on that. So a message is held for as long as InfiniBand's retries would last
// (see hold.h), and two Weft devices agree on how much can be held (see peer_window.h).
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
  std::size_t hold_bytes = 0;  // limit of the hold; 0: a message without a receive ends the stream
  // A message waits for at most `retries` times `timer_ns`. As on InfiniBand the receiver sets the
  // timer and the sender the number of retries.
  std::uint64_t timer_ns = 0;
  std::uint8_t retries = rnr_retry_infinite;
};

// What the peer understands beyond the RFCs, as its hello announced. rdma_cm has no hello; there
// the flags of the MPA frames announce it (Negotiated::weft and words).
struct PeerFeatures {
  bool send_immediate = false;     // an Immediate Data message may announce a Send's immediate
  std::uint32_t control_stag = 0;  // STag for control words; 0: the peer understands none
  // How much the peer can hold; 0: unknown, no limit. Needs control words. See peer_window.h.
  std::uint32_t hold_bytes = 0;
  // The connection is extended (XRC): requests belong to a shared receive queue of their receiver,
  // which a message in front of them names (wire::ImmediateData::names_queue).
  bool names_queues = false;
};

}  // namespace weft::iwarp
