// One-line descriptions of objects for logs; the format is not for parsing. Thread-safe. They throw
// at most std::bad_alloc, except to_string(QueuePair), which queries the device.
#pragma once

#include <string>

#include "weft/export.hpp"

namespace weft::verbs {

class Completion;
class Context;
class Device;
class MemoryRegion;
class QueuePair;

// "weft0 (embedded)"
[[nodiscard]] WEFT_API std::string to_string(const Device& device);
[[nodiscard]] WEFT_API std::string to_string(const Context& context);
// "queue pair 0x1234 (RC, RTS)". Throws Error if the state cannot be queried.
[[nodiscard]] WEFT_API std::string to_string(const QueuePair& queue_pair);
// "64 bytes at 0x7f0012345678, lkey 0x12, rkey 0x34"
[[nodiscard]] WEFT_API std::string to_string(const MemoryRegion& region);
// "request 7 of queue pair 0x1234: remote access error"
[[nodiscard]] WEFT_API std::string to_string(const Completion& completion);

}  // namespace weft::verbs
