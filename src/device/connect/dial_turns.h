// How many connections of queue pairs that connect by number are made to one destination at a time.
//
// A program may bring thousands of queue pairs to RTR at once. If all of them dialled at once, the
// peer would take what it cannot answer yet for an attack and drop it, and each would begin with
// TCP: within a host the first two connections bring about a pair of processes, through which the
// others need none.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "device/addresses.h"
#include "device/engine.h"

namespace weft::device {

// Of a device. Thread-safe; called with the lock of a dialer.
class DialTurns {
 public:
  // One connection that is made. Gives its place back when it ends.
  class Turn {
   public:
    Turn(DialTurns& turns, const AddressKey& key) : turns_(&turns), key_(key) {}
    Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)), key_(other.key_) {}
    Turn& operator=(Turn&&) = delete;
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (turns_) turns_->give_back(key_);
    }
    // In the child after fork(2), where the lock may be held for ever.
    void disown() { turns_ = nullptr; }

   private:
    DialTurns* turns_;
    AddressKey key_;
  };

  explicit DialTurns(Engine& engine) : engine_(engine) {}

  // Nothing: the limit is reached. Then on_deadline() of `waiter` is called once it may ask again.
  [[nodiscard]] std::optional<Turn> take(const sockaddr_storage& destination, bool within_host,
                                         const std::weak_ptr<Pollable>& waiter);
  // A waiter that was called needs no turn any more.
  void pass_on(const sockaddr_storage& destination);

 private:
  struct Destination {
    std::size_t active = 0;
    std::size_t most = 0;
    std::deque<std::weak_ptr<Pollable>> waiting;
  };
  void give_back(const AddressKey& key);
  void call_waiters(const AddressKey& key, bool ended);

  Engine& engine_;
  std::mutex mutex_;
  std::map<AddressKey, Destination> destinations_;  // with a turn that was taken, or a waiter
};

}  // namespace weft::device
