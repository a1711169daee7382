#include "interpose/listening.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>

#include "interpose/next.h"
#include "interpose/socket.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// One thread of a process takes what comes for all its listeners. After fork(2) the child has its
// own.
class Greeter {
 public:
  static Greeter& instance() {
    static constinit std::mutex making;
    static Greeter* greeter = nullptr;
    static pid_t owner = 0;
    const std::lock_guard lock(making);
    if (!greeter || owner != getpid()) {
      greeter = new Greeter();
      owner = getpid();
      start_thread([who = greeter] { who->run(); });
    }
    return *greeter;
  }

  stream::EventQueue& queue() { return queue_; }
  std::uint64_t add(std::weak_ptr<Listening> listening) {
    const std::lock_guard lock(mutex_);
    known_.emplace(++last_, std::move(listening));
    return last_;
  }
  void remove(std::uint64_t cookie) {
    const std::lock_guard lock(mutex_);
    known_.erase(cookie);
  }

 private:
  void run() {
    while (true) {
      // The kernel's own: EventQueue::next() would take over what the program's threads wait for.
      pollfd entry{queue_.fd(), POLLIN, 0};
      next::poll(&entry, 1, -1);
      auto event = queue_.next(Deadline::now());
      if (!event || !event->request) continue;
      if (const auto listening = find(event->cookie)) {
        listening->asked(std::move(*event->request));
      }
    }
  }
  std::shared_ptr<Listening> find(std::uint64_t cookie) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(cookie);
    return found == known_.end() ? nullptr : found->second.lock();
  }

  stream::EventQueue queue_;
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::unordered_map<std::uint64_t, std::weak_ptr<Listening>> known_;
};

}  // namespace

Listening::Listening(stream::Listener listener, int backlog, std::weak_ptr<Socket> socket)
    : backlog_(static_cast<std::size_t>(std::clamp(backlog, 1, SOMAXCONN))),
      socket_(std::move(socket)),
      address_(listener.local_address()),
      listener_(std::move(listener)) {}

std::shared_ptr<Listening> Listening::start(stream::Listener listener, int backlog,
                                            std::weak_ptr<Socket> socket) {
  listener.listen(std::clamp(backlog, 1, SOMAXCONN));
  auto made = std::make_shared<Listening>(std::move(listener), backlog, std::move(socket));
  Greeter& greeter = Greeter::instance();
  made->cookie_ = greeter.add(made);
  made->listener_->attach(&greeter.queue(), made->cookie_);
  return made;
}

std::string Listening::address() const {
  const std::lock_guard lock(mutex_);
  return address_;
}

bool Listening::is_open() const {
  const std::lock_guard lock(mutex_);
  return listener_.has_value();
}

void Listening::asked(stream::Request request) {
  const auto socket = socket_.lock();
  if (!socket) return;
  const std::lock_guard lock(mutex_);
  if (!listener_) return;
  waiting_.push_back(std::move(request));
  admit();
  socket->show_requests(!connected_.empty(), true);
}

// With the lock.
void Listening::admit() {
  while (!waiting_.empty() && connected_.size() < backlog_) {
    stream::Request request = std::move(waiting_.front());
    waiting_.pop_front();
    try {
      connected_.push_back(std::move(request).accept());
    } catch (const std::exception&) {
      // It has gone meanwhile, or there are no descriptors left: then it is refused.
    }
  }
}

std::optional<stream::Stream> Listening::take() {
  const auto socket = socket_.lock();
  const std::lock_guard lock(mutex_);
  std::optional<stream::Stream> taken;
  if (!connected_.empty()) {
    taken.emplace(std::move(connected_.front()));
    connected_.pop_front();
  }
  admit();
  if (socket) socket->show_requests(!connected_.empty() || !listener_, false);
  return taken;
}

void Listening::close() {
  std::optional<stream::Listener> listener;
  std::deque<stream::Stream> connected;
  std::deque<stream::Request> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (!listener_) return;
    listener.swap(listener_);
    connected.swap(connected_);
    waiting.swap(waiting_);
  }
  Greeter::instance().remove(cookie_);
  listener->attach(nullptr);
  for (stream::Stream& stream : connected) stream.abort();
  if (const auto socket = socket_.lock()) socket->show_requests(true, true);
}

}  // namespace weft::interpose
