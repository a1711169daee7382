// What hostile_process_test.cc and the program that it starts, hostile_process.cc, tell each other.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::cm::hostile {

// In the private data of a connection, of either side.
struct Granted {
  std::uint64_t address = 0;  // with all rights
  std::uint32_t length_bytes = 0;
  std::uint32_t rkey = 0;
  std::uint64_t other_address = 0;  // by the device: without rights; by the peer: with all
  std::uint32_t other_key = 0;
  std::uint32_t other_bytes = 0;
};

// In memory that both map.
struct Tally {
  std::atomic<std::uint64_t> changes{0};      // that the program has made in memory that it shares
  std::atomic<std::uint64_t> connections{0};  // that were established
  std::atomic<std::uint64_t> areas{0};        // files of memory that it has found to change
  std::atomic<std::uint64_t> leaks{0};        // bytes that it has read without a grant
};

// Lies around everything that is granted, and nowhere else.
inline constexpr std::uint64_t secret = 0xC5'5E'C2'E7'90'13'7A'D1;

}  // namespace weft::cm::hostile
