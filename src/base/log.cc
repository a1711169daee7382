#include "base/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>

#include "base/system_call.h"

namespace weft {
namespace {

// Process-wide, as standard error is.
constinit std::atomic<LogFunction> the_function{nullptr};

}  // namespace

void set_log_function(LogFunction function) {
  the_function = function;
}

// One write for the whole line, past the buffers of the program's own streams, by a bare system
// call: a library that replaces write(2) may be the caller.
void log(LogLevel level, const std::string& object, const std::string& message) {
  if (const LogFunction function = the_function) {
    return function(level, message.c_str(), object.c_str());
  }
  const std::string line = "weft: " + message + "\n";
  (void)!system_call(SYS_write, STDERR_FILENO, line.data(), line.size());
}

void log_format(LogLevel level, const char* object, const char* format, ...) {
  std::array<char, 1024> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  log(level, object, text.data());
}

}  // namespace weft
