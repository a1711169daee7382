// The clock of a simulation, and what is going to happen, in the order of time. What happens at the
// same time is ordered by the seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

#include "simulation/pipe.h"
#include "simulation/random.h"

namespace weft::simulation {

struct Event {
  enum class Kind : std::uint8_t {
    readable,     // bytes, a connection or an end reach a socket
    writable,     // room for bytes, or the outcome of connecting
    syn,          // the request to connect reaches the other host
    established,  // its answer reaches the socket that has connected
    refused,
    reset,
    datagram,  // a packet of UDP reaches its host
    deadline,  // of a watcher
    call,      // of the test
    timer,     // one of SimulatedTimer
    turn,      // a program goes on
  };

  Time due = 0;
  Kind kind = Kind::readable;
  std::uint64_t target = 0;  // a descriptor, or a number of what it is for
};

class Schedule {
 public:
  explicit Schedule(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] Time now() const { return now_; }
  void advance(Time to) {
    if (to > now_) now_ = to;
  }
  [[nodiscard]] Random& random() { return random_; }

  void add(const Event& event) { events_.push({event, random_.next(), ++added_}); }
  [[nodiscard]] bool empty() const { return events_.empty(); }
  [[nodiscard]] const Event& first() const { return events_.top().event; }
  void remove_first() { events_.pop(); }

  // What has happened, as one number: equal for equal sequences.
  void note(std::uint64_t value) { trace_ = (trace_ ^ value) * 0x100000001B3U; }
  [[nodiscard]] std::uint64_t trace() const { return trace_; }

 private:
  struct Entry {
    Event event;
    std::uint64_t order;  // among equal times
    std::uint64_t number;

    // std::priority_queue has the greatest entry first.
    friend bool operator<(const Entry& a, const Entry& b) {
      if (a.event.due != b.event.due) return a.event.due > b.event.due;
      if (a.order != b.order) return a.order > b.order;
      return a.number > b.number;
    }
  };

  // Not 0, because that stands for "no time" in the device. An hour, so that times can be
  // subtracted.
  Time now_ = 3'600'000'000'000;
  Random random_;
  std::priority_queue<Entry> events_;
  std::uint64_t added_ = 0;
  std::uint64_t trace_ = 0xCBF29CE484222325U;  // the offset basis of FNV-1a
};

}  // namespace weft::simulation
