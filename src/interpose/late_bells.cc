#include "interpose/late_bells.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "interpose/program_signals.h"
#include "interpose/socket.h"

namespace weft::interpose {
namespace {

struct Late {
  std::mutex mutex;
  std::vector<std::weak_ptr<Socket>> sockets;
};

constinit std::atomic<Late*> current{nullptr};
constinit std::atomic<bool> some{false};

// Never destroyed: threads of the program may wait until the process ends.
Late& late() {
  Late* known = current;
  if (!known) {
    auto* const made = new Late();
    if (current.compare_exchange_strong(known, made)) return *made;
    delete made;
  }
  return *known;
}

}  // namespace

// The parent's object is left alone: another thread may have held its lock.
void forget_late_bells() {
  current = nullptr;
  some = false;
}

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
  const InCall work;
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
