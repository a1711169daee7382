// How the progress thread begins and ends.
#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "base/blocked_signals.h"
#include "base/log.h"
#include "device/engine.h"

namespace weft::device {

// mutex_ must be held. The thread starts with the first descriptor or deadline, so that a process
// which opens no connection has none.
void Engine::start_thread() {
  // With `manual` the program has promised to call the device often enough.
  if (mode_ == ProgressMode::manual || thread_.joinable()) return;
  // Signals belong to the application, so this thread must not receive any but those of its own
  // faults.
  {
    const BlockedSignals inherited;
    thread_ = std::thread([this] { run(); });
  }
  pthread_setname_np(thread_.native_handle(), "weft-progress");
}

void Engine::start() {
  const std::lock_guard lock(mutex_);
  start_thread();
}

// What it was doing is in an unknown state, so the process cannot continue; but it prints why it
// ends.
void Engine::run() {
  try {
    take_nice_value();
    serve();
  } catch (const std::exception& error) {
    log(LogLevel::error, "progress thread",
        std::string("the progress thread cannot continue: ") + error.what());
    std::abort();
  }
}

// The program goes on without it: where it may not be had, the thread works as it would otherwise.
void Engine::take_nice_value() const {
  if (!kind_.nice) return;
  const int failed = sys::set_nice_value(*kind_.nice);
  if (failed == 0) return;
  const int needed = 20 - *kind_.nice;  // see RLIMIT_NICE in getrlimit(2)
  log_format(
      LogLevel::warning, "progress thread",
      "the progress thread keeps its priority, since WEFT_PRIORITY=%d was refused (%s): that "
      "needs CAP_SYS_NICE, or RLIMIT_NICE of at least %d (`ulimit -e %d`, LimitNICE=%d of a "
      "service)",
      *kind_.nice, strerror(-failed), needed, needed, *kind_.nice);
}

}  // namespace weft::device
