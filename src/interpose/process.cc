// Threads, the end of the process, and fork(2).
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "interpose/accept_thread.h"
#include "interpose/destinations.h"
#include "interpose/export.h"
#include "interpose/idle_threads.h"
#include "interpose/late_bells.h"
#include "interpose/process.h"
#include "interpose/program_signals.h"
#include "interpose/shared_listener.h"
#include "interpose/socket.h"
#include "interpose/table.h"
#include "interpose/unfinished_clients.h"
#include "weft/error.hpp"

namespace weft::interpose {

// Counts the holds of one process. A child of fork(2) gets its own, because the parent's threads do
// not exist there.
struct ExitHold::Count {
  std::mutex mutex;
  std::condition_variable changed;
  int holds = 0;
};
namespace {

using HoldCount = ExitHold::Count;

// Limits how long the process stays at its end. A peer that is alive needs a round trip.
constexpr std::chrono::seconds exit_timeout{5};

constinit std::atomic<HoldCount*> current_count{nullptr};

HoldCount& hold_count() {
  HoldCount* known = current_count;
  if (!known) {
    auto* const made = new HoldCount();  // never deleted: threads use it to the very end
    if (current_count.compare_exchange_strong(known, made)) return *made;
    delete made;
  }
  return *known;
}

void close_now(stream::Stream& stream, bool at_once) {
  if (at_once) stream.abort();
  stream.close(at_once ? Deadline::now() : Deadline(stream.options().linger));
}

// What the C library's files still hold at the end of the process. exit(3) writes it, and so it has
// to be written before the program's end of a relayed connection is closed. _exit(2) drops it: in a
// child of fork(2) it is a copy of what the parent writes.
enum class Stdio : std::uint8_t { is_written, is_dropped };

// Closes what the program has left open, so that its peers get all bytes, as with TCP. Closing the
// program's end of a relayed connection lets its relay finish.
void close_all(Stdio stdio) {
  if (!owns_table()) return;
  lock_table();
  const auto left = all_sockets();
  const auto relayed = relayed_descriptors();
  unlock_table();
  if (!relayed.empty() && stdio == Stdio::is_written) std::fflush(nullptr);
  for (const int fd : relayed) next::close(fd);
  for (const auto& socket : left) {
    if (socket->phase() == Socket::Phase::connected) close_in_background(socket->stream(), false);
  }
  const auto until = std::chrono::steady_clock::now() + exit_timeout;
  HoldCount& count = hold_count();
  std::unique_lock lock(count.mutex);
  count.changed.wait_until(lock, until, [&] { return count.holds == 0; });
}

[[gnu::destructor]] void at_exit() {
  close_all(Stdio::is_written);
}

// --- fork(2) -------------------------------------------------------------------------------------

// Both processes have each connection afterwards: the kernel carries its bytes to a relay in the
// parent. The child gets the kernel socket of each listener. The table stays locked until both
// handlers after fork(2) have run.
void before_fork() {
  hold_signals_before_fork();
  lock_table();
  StreamSet::leave_every_set();
  for (const auto& socket : all_sockets()) socket->prepare_fork();
  accept_thread_before_fork();
  Destinations::instance().before_fork();
  UnfinishedClients::instance().before_fork();
  shared_listener_before_fork();
}

void after_fork_in_parent() {
  shared_listener_after_fork();
  UnfinishedClients::instance().after_fork_in_parent();
  Destinations::instance().after_fork();
  accept_thread_after_fork_in_parent();
  unlock_table();
  release_signals_in_parent();
}

void after_fork_in_child() {
  shared_listener_after_fork();
  UnfinishedClients::instance().after_fork_in_child();
  Destinations::instance().after_fork();
  accept_thread_after_fork_in_child();
  current_count = nullptr;
  forget_idle_threads();
  forget_late_bells();
  StreamSet::forget_all();
  const auto sockets = all_sockets();
  for (const auto& [fd, socket] : take_listeners()) socket->replace_with_kernel_socket(fd);
  for (const auto& socket : sockets) socket->abandon_in_child();
  unlock_table();
  release_signals_in_child();
}

bool is_set(const char* variable) {
  const char* value = secure_getenv(variable);
  return value && *value;
}

[[gnu::constructor]] void prepare() {
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

}  // namespace

bool tcp_fallback_allowed() {
  const char* mode = secure_getenv("WEFT_SOCKETS");
  return mode && std::string_view(mode) == "fallback";
}

bool may_leave_tcp() {
  const char* mode = secure_getenv("WEFT_SAME_HOST");
  return !mode || std::string_view(mode) != "off";
}

bool requests_may_be_delayed() {
  static const bool may = is_set("WEFT_FAULT") || is_set("WEFT_LINK");
  return may;
}

bool may_leave_to_kernel() {
  static const bool may = [] {
    const char* sockets = secure_getenv("WEFT_SOCKETS");
    if (sockets && std::string_view(sockets) == "always") return false;
    const char* same_host = secure_getenv("WEFT_SAME_HOST");
    if (same_host && std::string_view(same_host) != "auto") return false;
    for (const char* name : {"WEFT_CAPTURE", "WEFT_TRACE", "WEFT_FAULT", "WEFT_LINK", "WEFT_CHECK",
                             "WEFT_PORT_OFFSET"}) {
      if (is_set(name)) return false;
    }
    return true;
  }();
  return may;
}

bool is_verbose() {
  const char* value = secure_getenv("WEFT_VERBOSE");
  return value && std::string_view(value) == "1";
}

void print_notice(const std::string& sentence) {
  const std::string line = "weft: " + sentence + "\n";
  [[maybe_unused]] const auto written = next::write(STDERR_FILENO, line.data(), line.size());
}

void start_thread(void (*run)(void*), void* argument) {
  idle_threads().start({run, argument});
}

ExitHold::ExitHold() : count_(&hold_count()) {
  const std::lock_guard lock(count_->mutex);
  ++count_->holds;
}

ExitHold::~ExitHold() {
  const std::lock_guard lock(count_->mutex);
  --count_->holds;
  count_->changed.notify_all();
}

// Closes it in this thread if that needs no wait, or if no other thread can be started.
void close_in_background(std::shared_ptr<stream::Stream> stream, bool at_once) {
  if (!at_once && stream->close_if_sent()) return;
  const auto close = [hold = std::make_shared<ExitHold>(), stream = std::move(stream), at_once] {
    try {
      close_now(*stream, at_once);
    } catch (const std::exception&) {
      // The connection was lost before.
    }
  };
  try {
    start_thread(close);
  } catch (const Error&) {
    close();
  }
}

}  // namespace weft::interpose

// _exit(2) runs no destructor, but the peers must get all bytes as well.
WEFT_INTERPOSED __attribute__((noreturn)) void _exit(int status) {
  using namespace weft::interpose;
  close_all(Stdio::is_dropped);
  next::exit_at_once(status);
  __builtin_unreachable();
}

WEFT_INTERPOSED __attribute__((noreturn)) void _Exit(int status) {
  _exit(status);
}
