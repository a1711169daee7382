// Much traffic of one kind, to measure what it costs to read: large frames, whose bytes count, and
// small ones, whose number counts. Both transports, with CRCs.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string_view>

#include "capture/made_capture.h"

namespace weft::capture::test {

inline constexpr std::array<std::string_view, 4> load_names = {"large-roce", "large-iwarp",
                                                               "small-roce", "small-iwarp"};

// Calls `write` for each packet of one connection until there are `packets` of them or a few more.
// The packets are 1 µs apart. `name` is one of load_names.
void make_load(std::string_view name, std::size_t packets,
               const std::function<void(const MadePacket&)>& write);

}  // namespace weft::capture::test
