// What belongs to the process: threads, its end, and fork(2).
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "interpose/export.h"
#include "interpose/listening.h"
#include "interpose/relay.h"
#include "interpose/socket.h"
#include "interpose/table.h"
#include "weft/error.hpp"

namespace weft::interpose {

// What is still under way. One for each process: a child has no part in its parent's.
struct Pending::Process {
  std::mutex mutex;
  std::condition_variable done;
  int pending = 0;
};
namespace {

using Closing = Pending::Process;

// A peer that lives takes no more than a round trip.
constexpr std::chrono::seconds patience_at_exit{5};

constinit std::atomic<Closing*> current{nullptr};

Closing& closing() {
  Closing* known = current;
  if (!known) {
    auto* const made = new Closing();  // threads use it to the very end
    if (current.compare_exchange_strong(known, made)) return *made;
    delete made;
  }
  return *known;
}

void close_now(stream::Stream& stream, bool at_once) {
  if (at_once) stream.abort();
  stream.close(at_once ? Deadline::now() : Deadline(stream.options().linger));
}

// What the program leaves open ends as it would with TCP: the peer gets all of it.
void close_all() {
  if (!table_is_ours()) return;
  lock_table();
  const auto left = all_sockets();
  const auto piped = piped_descriptors();
  unlock_table();
  if (!piped.empty()) std::fflush(nullptr);
  for (const int fd : piped) next::close(fd);  // then their relays end
  for (const auto& socket : left) {
    if (socket->phase() == Socket::Phase::connected) close_later(socket->stream(), false);
  }
  const auto until = std::chrono::steady_clock::now() + patience_at_exit;
  Closing& closes = closing();
  std::unique_lock lock(closes.mutex);
  closes.done.wait_until(lock, until, [&] { return closes.pending == 0; });
}

[[gnu::destructor]] void at_exit() {
  close_all();
}

// --- fork(2) -------------------------------------------------------------------------------------

// Connections go over to both processes: the kernel carries their bytes, to a relay in the parent.
// What listens is the kernel's anyway, and the child gets it.
void before_fork() {
  lock_table();
  for (const auto& socket : all_sockets()) socket->share();
}

void after_fork_in_child() {
  current = nullptr;
  const auto sockets = all_sockets();
  for (const auto& [fd, socket] : take_listening()) socket->become_kernel(fd);
  for (const auto& socket : sockets) socket->leave_to_parent();
  unlock_table();
}

[[gnu::constructor]] void prepare() {
  pthread_atfork(before_fork, unlock_table, after_fork_in_child);
}

}  // namespace

bool may_fall_back() {
  const char* wish = std::getenv("WEFT_SOCKETS");
  return wish && std::string_view(wish) == "fallback";
}

void say(const std::string& sentence) {
  const std::string line = "weft: " + sentence + "\n";
  [[maybe_unused]] const auto written = next::write(STDERR_FILENO, line.data(), line.size());
}

void start_thread(void (*run)(void*), void* argument) {
  struct Start {
    void (*run)(void*);
    void* argument;
  };
  auto start = std::make_unique<Start>(Start{run, argument});
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread{};
  const int failed = pthread_create(
      &thread, nullptr,
      [](void* given) -> void* {
        const std::unique_ptr<Start> mine(static_cast<Start*>(given));
        mine->run(mine->argument);
        return nullptr;
      },
      start.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0) throw Error(failed, "no thread for a socket");
  (void)start.release();
  pthread_detach(thread);
}

Pending::Pending() : process_(&closing()) {
  const std::lock_guard lock(process_->mutex);
  ++process_->pending;
}

Pending::~Pending() {
  const std::lock_guard lock(process_->mutex);
  --process_->pending;
  process_->done.notify_all();
}

void close_later(std::shared_ptr<stream::Stream> stream, bool at_once) {
  const auto close = [pending = std::make_shared<Pending>(), stream = std::move(stream), at_once] {
    try {
      close_now(*stream, at_once);
    } catch (const std::exception&) {
      // It was broken before.
    }
  };
  try {
    start_thread(close);
  } catch (const Error&) {
    close();
  }
}

// --- The kernel carries the bytes ----------------------------------------------------------------

bool Socket::become_pipe() {
  if (phase_ == Phase::piped) return true;
  if (phase_ != Phase::connected) return false;
  const auto stream = this->stream();
  stream->unwatch(this);
  const auto local = local_name();
  const auto peer = peer_name();
  const std::scoped_lock lock(mutex_, levels_);
  if (!shadow_.usable()) return false;
  local_name_ = local;
  peer_name_ = peer;
  phase_ = Phase::piped;
  Descriptor pipe = shadow_.become_pipe();
  pipe_fd_ = pipe.get();
  relay(std::move(pipe), stream);
  return true;
}

void Socket::share() {
  become_pipe();
  if (phase_ != Phase::listening) return;
  listening()->share();
  keep_silent_back(kernel());
  set_blocking(kernel(), !nonblocking_);  // as the child expects it
}

void Socket::set_nonblocking(bool nonblocking) {
  nonblocking_ = nonblocking;
  const auto listening = this->listening();
  if (listening && listening->is_shared()) set_blocking(kernel(), !nonblocking);
}

void Socket::become_kernel(int fd) const {
  const bool closes = (next::fcntl(fd, F_GETFD, nullptr) & FD_CLOEXEC) != 0;
  next::dup3(kernel_.get(), fd, closes ? O_CLOEXEC : 0);
}

// What is the parent's is not to be ended here.
void Socket::leave_to_parent() {
  new std::shared_ptr<stream::Stream>(std::move(stream_));
  new std::shared_ptr<Listening>(std::move(listening_));
  switch (phase_) {
    case Phase::piped:
      next::close(pipe_fd_);
      return;
    case Phase::listening:
      kernel_.reset();
      shadow_.release();
      return;
    case Phase::connecting:
      phase_ = Phase::lost;
      return;
    default:
      return;
  }
}

}  // namespace weft::interpose

// Programs that end without exit handlers have something under way as well.
WEFT_INTERPOSED __attribute__((noreturn)) void _exit(int status) {
  weft::interpose::close_all();
  weft::interpose::next::exit_at_once(status);
  __builtin_unreachable();
}

WEFT_INTERPOSED __attribute__((noreturn)) void _Exit(int status) {
  _exit(status);
}
