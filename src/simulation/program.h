// A program of a simulation: a thread that runs only while it has the turn.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <poll.h>

#include "simulation/pipe.h"
#include "simulation/process.h"

namespace weft::simulation {

// Passes the turn between a program and the thread that lets it run.
class Turn {
 public:
  // The other thread: returns when the program gives the turn back, or ends.
  void lend() {
    std::unique_lock lock(mutex_);
    lent_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !lent_; });
  }
  // The program: before it begins, and while it waits.
  void await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return lent_; });
  }
  void give_back() {
    const std::lock_guard lock(mutex_);
    lent_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool lent_ = false;
};

// What a program waits for.
struct Wait {
  std::span<pollfd> entries;  // of its own stack
  std::optional<Time> until;
  bool polls = false;  // it has polled without success
  bool ends = false;   // an event for its end is in the schedule
};

struct Program {
  enum class State : std::uint8_t { made, running, waiting, ended };

  std::uint64_t number = 0;
  std::string name;
  std::shared_ptr<SimulatedProcess> process;
  std::function<void()> function;
  bool in_background = false;  // a further thread of the process, which ends with it
  State state = State::made;
  bool killed = false;
  Wait wait{};
  std::uint32_t waits = 0;  // how often it has waited
  unsigned looks = 0;       // without success, since it has waited last
  Time waits_since = 0;
  Time fruitless_since = 0;  // the first of the polls without an event in between; 0: none
  Turn turn;
  std::thread thread;
};

}  // namespace weft::simulation
