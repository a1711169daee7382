// Messages for the user: to standard error, or to the sink of weft/log.hpp.
#pragma once

#include <string>

#include "weft/log.hpp"

namespace weft {

// The sink as it crosses between libraries that each contain this file. Null: standard error.
using LogFunction = void (*)(LogLevel level, const char* message, const char* object);

// Thread-safe.
void set_log_function(LogFunction function);

// `message` is a sentence without a line end; on standard error "weft: " stands before it.
void log(LogLevel level, const std::string& object, const std::string& message);
[[gnu::format(printf, 3, 4)]] void log_format(LogLevel level, const char* object,
                                              const char* format, ...);

}  // namespace weft
