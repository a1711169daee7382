#include "interpose/table.h"
#include "base/system_call.h"
#include "interpose/program_signals.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace weft::interpose {
namespace {

// Descriptors from this number on are looked up in the map at each call.
constexpr std::size_t flagged_descriptors = 65536;

struct Table {
  std::mutex mutex;
  std::unordered_map<int, std::shared_ptr<Socket>> sockets;
};

// Never destroyed: threads of the program may use it until the process ends.
Table& table() {
  static Table* const made = new Table();
  return *made;
}

// Of descriptors that may be in the table, so that calls on other files take no lock.
enum class Flag : std::uint8_t { none, socket, in_epoll_set };
constinit std::array<std::atomic<Flag>, flagged_descriptors> flags{};
constinit std::atomic<pid_t> owner{0};  // the process that the table belongs to

bool may_be_socket(int fd) {
  if (fd < 0) return false;
  const auto index = static_cast<std::size_t>(fd);
  if (index >= flags.size()) return owner != 0;
  return flags[index].load(std::memory_order_acquire) != Flag::none;
}

void set_flag(int fd, Flag flag) {
  const auto index = static_cast<std::size_t>(fd);
  if (index < flags.size()) flags[index].store(flag, std::memory_order_release);
}

pid_t this_process() {
  return static_cast<pid_t>(
      system_call(SYS_getpid));  // a child of vfork(2) must not get a cached number of its parent
}

}  // namespace

std::shared_ptr<Socket> find(int fd) {
  if (!may_be_socket(fd)) return nullptr;
  const InCall work;
  const std::lock_guard lock(table().mutex);
  const auto found = table().sockets.find(fd);
  return found == table().sockets.end() ? nullptr : found->second;
}

std::shared_ptr<Socket> find_stream(int fd) {
  auto socket = find(fd);
  return socket && socket->phase() != Socket::Phase::relayed ? socket : nullptr;
}

bool is_in_epoll_set(int fd) {
  if (fd < 0) return false;
  const auto index = static_cast<std::size_t>(fd);
  return index < flags.size() && flags[index].load(std::memory_order_acquire) == Flag::in_epoll_set;
}

// With the lock, so that the number is not another file's meanwhile.
void note_epoll_set(int fd, const Socket& socket) {
  const InCall work;
  const std::lock_guard lock(table().mutex);
  const auto found = table().sockets.find(fd);
  if (found != table().sockets.end() && found->second.get() == &socket) {
    set_flag(fd, Flag::in_epoll_set);
  }
}

// The number may still stand for a socket that the kernel has closed already, as the target of
// dup2(2) does, so the old entry is removed first.
void put(int fd, std::shared_ptr<Socket> socket) {
  const InCall work;
  forget(fd);
  socket->add_descriptor();
  const std::lock_guard lock(table().mutex);
  owner = this_process();
  table().sockets[fd] = std::move(socket);
  set_flag(fd, Flag::socket);
}

void forget(int fd) {
  if (!may_be_socket(fd) || !owns_table()) return;
  const InCall work;
  std::shared_ptr<Socket> socket;
  {
    const std::lock_guard lock(table().mutex);
    const auto found = table().sockets.find(fd);
    if (found == table().sockets.end()) return;
    socket = std::move(found->second);
    // remove_descriptor() and the socket's destructor run after the lock of the table is released.
    table().sockets.erase(found);
    set_flag(fd, Flag::none);
  }
  socket->remove_descriptor();
}

void forget_range(unsigned first, unsigned last) {
  const InCall work;
  // The numbers are collected first, because forget() takes the lock itself and changes the map.
  std::vector<int> ours;
  {
    const std::lock_guard lock(table().mutex);
    for (const auto& [fd, socket] : table().sockets) {
      const auto number = static_cast<unsigned>(fd);
      if (number >= first && number <= last) ours.push_back(fd);
    }
  }
  for (const int fd : ours) forget(fd);
}

void forget_set(int fd) {
  const InCall work;
  StreamSet* const set = StreamSet::of(fd);
  if (set && owns_table()) set->leave_all(true);
}

bool owns_table() {
  return owner == this_process();
}

// This function and the next three take no lock: their callers hold it, by lock_table().
std::vector<std::pair<int, std::shared_ptr<Socket>>> all_entries() {
  return {table().sockets.begin(), table().sockets.end()};
}

// A socket with several descriptors is returned once.
std::vector<std::shared_ptr<Socket>> all_sockets() {
  std::vector<std::shared_ptr<Socket>> all;
  all.reserve(table().sockets.size());
  for (const auto& [fd, socket] : table().sockets) all.push_back(socket);
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<int> relayed_descriptors() {
  std::vector<int> found;
  for (const auto& [fd, socket] : table().sockets) {
    if (socket->phase() == Socket::Phase::relayed) found.push_back(fd);
  }
  return found;
}

std::vector<std::pair<int, std::shared_ptr<Socket>>> take_listeners() {
  std::vector<std::pair<int, std::shared_ptr<Socket>>> taken;
  for (const auto& [fd, socket] : table().sockets) {
    if (socket->phase() == Socket::Phase::listening) taken.emplace_back(fd, socket);
  }
  for (const auto& [fd, socket] : taken) {
    table().sockets.erase(fd);
    set_flag(fd, Flag::none);
  }
  return taken;
}

void lock_table() {
  table().mutex.lock();
}

void unlock_table() {
  // In the child of fork(2) this makes the copied table the child's own; in the parent it changes
  // nothing.
  if (owner != 0) owner = this_process();
  table().mutex.unlock();
}

bool lock_table_of_parent() {
  constexpr int tries = 100;
  constexpr std::chrono::microseconds pause{100};
  for (int i = 0; i < tries; ++i) {
    if (table().mutex.try_lock()) return true;
    std::this_thread::sleep_for(pause);
  }
  return false;
}

void unlock_table_of_parent() {
  table().mutex.unlock();
}

}  // namespace weft::interpose
