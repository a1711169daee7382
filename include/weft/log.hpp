// Where the library writes what it has to tell the user beside its errors.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "weft/export.hpp"

namespace weft {

enum class LogLevel : std::uint8_t {
  info,     // what the library does: which device serves the program
  warning,  // something works in another way than expected; the message has the next step
  error,    // something cannot work; a call fails, too
};

// `message` is a sentence, and includes the name of the object. `object` is what it is about:
// "weft0", "queue pair 0x00a2c1", "rdma_cm", "backend", "faults".
using LogSink =
    std::function<void(LogLevel level, std::string_view message, std::string_view object)>;

// Passes all that the library would write to standard error to `sink` instead; an empty sink ends
// that. Any thread of the library may call the sink, also several at once, and while a call of the
// program waits: it should return soon, and must not call Weft. What it throws is ignored.
// Thread-safe; the old sink may still be running when this returns.
WEFT_API void set_log(LogSink sink);

}  // namespace weft
