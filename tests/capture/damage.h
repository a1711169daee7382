// Damage of captures under a seed, as networks and taps cause it: packets lost before the capture,
// after it and by it, captured twice, changed, and reordered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "capture/made_capture.h"
#include "support/random.h"

namespace weft::capture::test {

using weft::test::Random;

constexpr std::int64_t retransmission_ns = 20'000'000;

// A conversation without damage. The first packets, of the handshake, are not damaged or moved.
struct Conversation {
  MadeCapture capture;
  std::size_t handshake_packets = 0;
  // Packets that open or close connections. Nothing of a connection follows before they have
  // arrived, so none of them is sent again after that; and nothing is sent again after a connection
  // is closed.
  std::vector<bool> opening{};
};

// What happens to the packets: each happens to one packet in this number, or never if it is 0.
struct Damage {
  std::size_t window = 1;      // of the reordering
  std::size_t before_tap = 0;  // lost before the capture, and sent again
  std::size_t after_tap = 0;   // lost after the capture, and sent again
  std::size_t by_tap = 0;      // received, but not in the capture
  std::size_t captured_twice = 0;
  std::size_t changed = 0;  // a byte is wrong in the capture, which the ICRC or CRC shows
};

inline bool happens(Random& random, std::size_t one_in) {
  return one_in != 0 && random.chance(one_in);
}

inline MadePacket later(MadePacket packet, std::int64_t time_ns) {
  packet.time_ns += time_ns;
  return packet;
}

// How late a packet may come at most: no network holds it longer.
constexpr std::int64_t most_late_ns = 100'000'000;

// Each packet moves by less than `window` places, and not beyond packets that are too late.
inline MadeCapture shuffled(const MadeCapture& capture, std::size_t from, std::size_t window,
                            Random& random) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t i = 0; i < capture.size(); ++i) {
    std::size_t place = i < from ? i : i + random.below(window);
    place = std::min(place, capture.size() - 1);
    while (capture[place].time_ns > capture[i].time_ns + most_late_ns) --place;
    places.emplace_back(place, i);
  }
  std::ranges::sort(places);
  MadeCapture out;
  for (const auto& [place, i] : places) {
    out.push_back(capture[i]);
    out.back().time_ns = capture[out.size() - 1].time_ns;  // the time of the place
  }
  return out;
}

// Changes a byte behind the headers, if there is one.
inline void change_one_byte(MadePacket& packet, Random& random) {
  constexpr std::size_t headers_bytes = 66;
  const std::size_t bytes = packet.bytes.size();
  const std::size_t at =
      bytes > headers_bytes ? headers_bytes + random.below(bytes - headers_bytes) : bytes - 1;
  packet.bytes[at] ^= static_cast<std::byte>(1 + random.below(255));
}

struct Damaged {
  MadeCapture capture;
  std::size_t lacking = 0;  // packets that the capture does not have at all
};

// A repetition comes 40 packets after the place of the lost packet.
inline Damaged damaged(const Conversation& made, const Damage& damage, Random& random) {
  constexpr std::size_t repeated_after = 40;
  Damaged out;
  std::vector<std::pair<std::size_t, MadePacket>> repetitions;
  std::int64_t late_ns = 0;
  const auto add = [&](const MadePacket& packet) {
    const std::int64_t now_ns = out.capture.empty() ? 0 : out.capture.back().time_ns;
    out.capture.push_back(later(packet, late_ns));
    out.capture.back().time_ns = std::max(out.capture.back().time_ns, now_ns);
  };
  for (std::size_t i = 0; i < made.capture.size(); ++i) {
    const bool opens = !made.opening.empty() && made.opening[i];
    while (!repetitions.empty() && (repetitions.front().first <= i || opens)) {
      late_ns += retransmission_ns;
      add(repetitions.front().second);
      repetitions.erase(repetitions.begin());
    }
    const MadePacket& packet = made.capture[i];
    const bool fixed = i < made.handshake_packets;
    const bool before = !fixed && happens(random, damage.before_tap) && !opens;
    const bool after = !fixed && !before && happens(random, damage.after_tap) && !opens;
    const bool by_tap = !fixed && !before && !after && happens(random, damage.by_tap);
    const bool changed = !fixed && !before && !after && !by_tap && happens(random, damage.changed);
    if (before || after) repetitions.emplace_back(i + repeated_after, packet);
    if (by_tap || changed) ++out.lacking;
    if (!before && !by_tap) {
      add(packet);
      if (changed) change_one_byte(out.capture.back(), random);
      if (!fixed && !changed && happens(random, damage.captured_twice)) {
        out.capture.push_back(out.capture.back());
      }
    }
  }
  for (const auto& [at, packet] : repetitions) {
    late_ns += retransmission_ns;
    add(packet);
  }
  out.capture = shuffled(out.capture, made.handshake_packets, damage.window, random);
  return out;
}

}  // namespace weft::capture::test
