// What peers can make a listener hold by being silent after they were accepted.
#pragma once

#include <chrono>
#include <cstddef>

namespace weft::verbs::detail {

// The number of connections, or streams, that are accepted and not established yet.
inline constexpr std::size_t most_accepted = 64;
// A peer that was silent for this long makes room for others. One that works needs a round trip,
// and a processor for its thread. So silent peers can take each place ten times a second at most.
inline constexpr std::chrono::milliseconds longest_silence{100};

}  // namespace weft::verbs::detail
