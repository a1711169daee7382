// Objects in words, for logs: in one line, not to be parsed. All throw std::bad_alloc at most, but
// for to_string(QueuePair), which asks the device. Thread-safe.
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
// "queue pair 0x1234 (RC, RTS)". Throws Error where its state cannot be queried.
[[nodiscard]] WEFT_API std::string to_string(const QueuePair& queue_pair);
// "64 bytes at 0x7f0012345678, lkey 0x12, rkey 0x34"
[[nodiscard]] WEFT_API std::string to_string(const MemoryRegion& region);
// "request 7 of queue pair 0x1234: remote access error"
[[nodiscard]] WEFT_API std::string to_string(const Completion& completion);

}  // namespace weft::verbs
