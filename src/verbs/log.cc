#include "base/log.h"

#include <atomic>
#include <memory>
#include <utility>

#include "provider/shared.h"

namespace weft {
namespace {

// A function without state can cross to the drop-in library, which has a copy of base of its own.
// Never destroyed: threads of the device run until the process ends.
std::atomic<std::shared_ptr<const LogSink>>& the_sink() {
  static auto* const sink = new std::atomic<std::shared_ptr<const LogSink>>;
  return *sink;
}

void pass_on(LogLevel level, const char* message, const char* object) {
  const std::shared_ptr<const LogSink> sink = the_sink().load();
  if (!sink) return;
  try {
    (*sink)(level, message, object);
  } catch (...) {
    // The caller is a thread of the library, which has nowhere to throw to.
  }
}

}  // namespace

void set_log(LogSink sink) {
  const bool any = static_cast<bool>(sink);
  if (any) the_sink().store(std::make_shared<const LogSink>(std::move(sink)));
  set_log_function(any ? &pass_on : nullptr);
  provider::shared_embedded().set_log(any ? &pass_on : nullptr);
  if (!any) the_sink().store(nullptr);
}

}  // namespace weft
