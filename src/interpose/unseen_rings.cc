#include "interpose/unseen_rings.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "interpose/next.h"
#include "interpose/process.h"
#include "interpose/table.h"

namespace weft::interpose {
namespace {

// Programs make their rings at the start, before most of their connections. The bits of a word say
// which numbers were looked at.
constexpr int lowest_descriptors = 64;
// After this time a number is looked at again: the C library may have closed it (fclose(3)).
constexpr std::int64_t memory_ms = 1000;

constinit std::atomic<bool> found_ring{false};
constinit std::atomic<std::uint64_t> looked_at{0};
constinit std::atomic<std::int64_t> looked_since_ms{0};

std::int64_t now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// A file without a name, whose kind only its link tells. Where /proc is missing, there is none.
bool is_ring(int fd) {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  std::array<char, 64> target{};
  const ssize_t bytes = readlink(path.data(), target.data(), target.size());
  return bytes > 0 &&
         std::string_view(target.data(), static_cast<std::size_t>(bytes)).find("[io_uring]") !=
             std::string_view::npos;
}

// The open descriptors among the lowest that are not in `known`, by one system call.
std::uint64_t open_descriptors(std::uint64_t known) {
  std::array<pollfd, lowest_descriptors> entries{};
  nfds_t count = 0;
  for (int fd = 0; fd < lowest_descriptors; ++fd) {
    if ((known >> fd & 1) == 0) entries[count++] = {fd, 0, 0};
  }
  if (next::poll(entries.data(), count, 0) < 0) return 0;
  std::uint64_t open = 0;
  for (nfds_t i = 0; i < count; ++i) {
    if ((entries[i].revents & POLLNVAL) == 0) open |= std::uint64_t{1} << entries[i].fd;
  }
  return open;
}

bool look() {
  const std::int64_t now = now_ms();
  if (now - looked_since_ms >= memory_ms) {
    looked_since_ms = now;
    looked_at = 0;
  }
  const std::uint64_t open = open_descriptors(looked_at);
  for (int fd = 0; fd < lowest_descriptors; ++fd) {
    if ((open >> fd & 1) == 0 || find(fd)) continue;
    if (is_ring(fd)) return true;
    looked_at |= std::uint64_t{1} << fd;
  }
  return false;
}

void relay_all() {
  lock_table();
  const auto sockets = all_sockets();
  unlock_table();
  for (const auto& socket : sockets) socket->start_relay();
}

}  // namespace

bool has_ring() {
  if (found_ring) return true;
  if (!look()) return false;
  if (!found_ring.exchange(true)) {
    print_notice(
        "the program uses io_uring by system calls of its own, so its connections are slower: the "
        "kernel carries their bytes to the streams");
    relay_all();
  }
  return true;
}

}  // namespace weft::interpose
