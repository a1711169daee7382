#include "interpose/late_bells.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "interpose/socket.h"

namespace weft::interpose {
namespace {

struct Late {
  std::mutex mutex;
  std::vector<std::weak_ptr<Socket>> sockets;
};

// Never destroyed: threads of the program may wait until the process ends.
Late& late() {
  static Late* const made = new Late();
  return *made;
}

constinit std::atomic<bool> some{false};

}  // namespace

bool has_late_bells() {
  return some.load(std::memory_order_relaxed);
}

void note_late_bell(const std::weak_ptr<Socket>& socket) {
  const std::lock_guard lock(late().mutex);
  late().sockets.push_back(socket);
  some = true;
}

// The sockets are called without the lock. One that still lacks its byte is noted again.
void drop_late_bells() {
  if (!has_late_bells()) return;
  std::vector<std::weak_ptr<Socket>> sockets;
  {
    const std::lock_guard lock(late().mutex);
    sockets.swap(late().sockets);
    some = false;
  }
  for (const auto& each : sockets) {
    if (const auto socket = each.lock()) socket->drop_late_bells();
  }
}

}  // namespace weft::interpose
