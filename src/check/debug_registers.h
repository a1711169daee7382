// The debug registers of the processor: each watches up to eight bytes of memory for the accesses
// of one thread, by perf_event_open(2) and without privileges.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace weft::check {

struct WatchedBytes {
  std::uint64_t first = 0;
  std::uint32_t bytes = 1;  // 1, 2, 4 or 8; `first` is a multiple of it
  bool writes_only = false;
};

// Watches for a thread of this process, and for the threads that it makes afterwards: not for the
// children of fork(2), and not behind execve(2). Accesses of the kernel do not count. With `tag`
// each access raises SIGTRAP in its thread, with the tag as data (si_perf_data); with 0 accesses
// are counted only. Returns a descriptor of the caller, or -1 with errno: ENOSPC if all registers
// are in use, by a debugger perhaps.
[[nodiscard]] int open_debug_register(const WatchedBytes& watched, pid_t thread, std::uint64_t tag);

// These call the kernel directly, so that they may be called in a signal handler, and no preloaded
// library sees them.
void enable_debug_register(int file);
void disable_debug_register(int file);
void close_debug_register(int file);
// The accesses so far, of all threads that it covers.
[[nodiscard]] std::uint64_t accesses_of(int file);

// Why memory cannot be watched here, as the end of a sentence; empty if it can.
[[nodiscard]] std::string why_no_debug_registers();

}  // namespace weft::check
