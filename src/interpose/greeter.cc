#include "interpose/greeter.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "interpose/listening.h"
#include "interpose/socket.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// Another process may have accepted who was waiting, and nobody tells of that.
constexpr int look_again_ms = 50;

constinit std::mutex making;
constinit Greeter* greeter = nullptr;
constinit std::atomic<pid_t> owner{0};

}  // namespace

Greeter& Greeter::instance() {
  const std::lock_guard lock(making);
  if (!greeter || owner != getpid()) {
    greeter = new Greeter();  // the thread uses it to the very end
    owner = getpid();
    start_thread([who = greeter] { who->run(); });
  }
  return *greeter;
}

std::vector<std::shared_ptr<Listening>> all_listening() {
  if (owner != getpid()) return {};
  return Greeter::instance().all();
}

Greeter::Greeter() : epoll_(out_of_the_way(Descriptor(epoll_create1(EPOLL_CLOEXEC)))) {
  if (!epoll_.valid()) throw Error(errno, "no descriptor left to listen with");
}

std::uint64_t Greeter::add(int kernel, std::weak_ptr<Listening> listening) {
  const std::lock_guard lock(mutex_);
  known_.emplace(++last_, std::move(listening));
  epoll_event event{.events = 0, .data = {.u64 = last_}};
  if (next::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, kernel, &event) != 0) {
    known_.erase(last_);
    throw Error(errno, "cannot wait for connections");
  }
  return last_;
}

void Greeter::watch(int kernel, std::uint64_t cookie) {
  epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = cookie}};
  next::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, kernel, &event);
}

void Greeter::remove(int kernel, std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  next::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, kernel, nullptr);
  known_.erase(cookie);
}

std::vector<std::shared_ptr<Listening>> Greeter::all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Listening>> found;
  for (const auto& [cookie, known] : known_) {
    if (auto listening = known.lock()) found.push_back(std::move(listening));
  }
  return found;
}

std::shared_ptr<Listening> Greeter::find(std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(cookie);
  return found == known_.end() ? nullptr : found->second.lock();
}

void Greeter::run() {
  bool some_wait = false;
  while (true) {
    std::array<epoll_event, 16> events{};
    const int count = next::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                       some_wait ? look_again_ms : -1);
    for (int i = 0; i < count; ++i) {
      if (const auto listening = find(events[static_cast<std::size_t>(i)].data.u64)) {
        listening->knocked();
      }
    }
    some_wait = false;
    for (const auto& listening : all()) {
      if (listening->look_again(count == 0)) some_wait = true;
    }
  }
}

}  // namespace weft::interpose
