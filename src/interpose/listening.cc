#include "interpose/listening.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "interpose/address.h"
#include "interpose/greeter.h"
#include "interpose/socket.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// A process that has not forked within some seconds of the first client will hardly do so: the
// client need not wait any longer.
constexpr unsigned looks_before_ahead = 40;
// So long another process may take what may be our own.
constexpr unsigned looks_before_own = 4;

// Each by a thread; those beyond wait in the kernel's queue.
constexpr std::size_t most_heard = 64;

bool somebody_waits(int kernel) {
  pollfd entry{kernel, POLLIN, 0};
  return next::poll(&entry, 1, 0) > 0;
}

}  // namespace

Listening::Listening(int kernel, int backlog, const stream::Options& options,
                     std::weak_ptr<Socket> socket)
    : kernel_(kernel),
      port_(port_of(name_of(kernel))),
      backlog_(static_cast<std::size_t>(std::clamp(backlog, 1, SOMAXCONN))),
      options_(options),
      socket_(std::move(socket)) {}

std::shared_ptr<Listening> Listening::start(int kernel, int backlog, const stream::Options& options,
                                            std::weak_ptr<Socket> socket) {
  auto made = std::make_shared<Listening>(kernel, backlog, options, std::move(socket));
  const std::lock_guard lock(made->mutex_);
  made->cookie_ = Greeter::instance().add(kernel, made);
  made->watch_if_room();
  return made;
}

bool Listening::is_open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

bool Listening::is_shared() const {
  const std::lock_guard lock(mutex_);
  return shared_;
}

bool Listening::is_left_to_kernel() const {
  const std::lock_guard lock(mutex_);
  return open_ && !ahead_;
}

// With the lock.
void Listening::watch_if_room() {
  const bool room = connected_.size() < backlog_ && heard_ < most_heard;
  if (!open_ || watched_ || waits_ || !room) return;
  watched_ = true;
  Greeter::instance().watch(kernel_, cookie_);
}

void Listening::show(bool another) {
  if (const auto socket = socket_.lock()) {
    socket->show_requests(!connected_.empty() || waits_ || !open_, another);
  }
}

void Listening::go_ahead() {
  const std::lock_guard lock(mutex_);
  if (shared_ || ahead_) return;
  ahead_ = true;
  waits_ = false;  // the greeter is told of them once more
  watch_if_room();
  show(false);
}

void Listening::before_connecting(std::uint16_t port) {
  for (const auto& listening : all_listening()) {
    listening->go_ahead();
    if (listening->port_ == port) listening->expect_own();
  }
}

// One connection is taken ahead, even where others may accept, if they do not.
void Listening::expect_own() {
  const std::lock_guard lock(mutex_);
  if (ahead_) return;
  ++own_;
}

void Listening::share() {
  const std::lock_guard lock(mutex_);
  shared_ = true;
  ahead_ = false;
}

// --- Who connects --------------------------------------------------------------------------------

void Listening::knocked() {
  const auto socket = socket_.lock();  // so long the kernel has it
  const std::lock_guard lock(mutex_);
  watched_ = false;
  if (!socket || !open_) return;
  if (ahead_) return take_ahead();
  waits_ = true;
  looks_ = 0;
  show(true);
}

// With the lock.
void Listening::take_ahead() {
  if (somebody_waits(kernel_)) {
    Descriptor connection(next::accept4(kernel_, nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid()) {
      connection = out_of_the_way(std::move(connection));
      if (own_ > 0) --own_;
      ++heard_;
      try {
        start_thread([self = shared_from_this(), owned = std::move(connection)]() mutable {
          self->welcome(std::move(owned));
        });
      } catch (const Error&) {
        --heard_;  // it is refused
      }
    } else if (errno == EMFILE || errno == ENFILE) {
      waits_ = true;  // for better times
      show(true);
    }
  }
  watch_if_room();
}

// With the lock they are connected one after the other: in the order in which they are accepted.
void Listening::welcome(Descriptor connection) {
  std::optional<Asking> asking;
  try {
    asking = hear(std::move(connection), options_, Patience::much);
  } catch (const std::exception&) {
    // It is refused; others wait for better times.
  }
  const std::lock_guard lock(mutex_);
  --heard_;
  bool another = false;
  if (asking && open_) {
    try {
      connected_.push_back(let_in(std::move(*asking)));
      another = true;
    } catch (const std::exception&) {
      // It has gone meanwhile.
    }
  }
  watch_if_room();
  if (another) show(true);
}

bool Listening::look_again(bool later) {
  const std::lock_guard lock(mutex_);
  if (!waits_ || !open_) return false;
  if (later) ++looks_;
  if (!somebody_waits(kernel_)) {
    waits_ = false;
    own_ = 0;
  } else if (own_ > 0 && looks_ >= looks_before_own) {
    waits_ = false;
    take_ahead();
  } else if (!shared_ && looks_ >= looks_before_ahead) {
    ahead_ = true;
  }
  if (ahead_) waits_ = false;  // it is taken
  watch_if_room();
  show(false);
  return waits_;
}

std::optional<Newcomer> Listening::take() {
  const std::lock_guard lock(mutex_);
  std::optional<Newcomer> taken;
  if (!connected_.empty()) {
    taken.emplace(std::move(connected_.front()));
    connected_.pop_front();
  }
  watch_if_room();
  show(false);
  return taken;
}

void Listening::close() {
  std::deque<Newcomer> connected;
  {
    const std::lock_guard lock(mutex_);
    if (!open_) return;
    open_ = false;
    connected.swap(connected_);
    Greeter::instance().remove(kernel_, cookie_);
    show(true);
  }
  for (Newcomer& newcomer : connected) {
    if (auto* stream = std::get_if<stream::Stream>(&newcomer)) stream->abort();
  }
}

}  // namespace weft::interpose
