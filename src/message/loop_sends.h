// LoopSends: what the connections of a loop share where messages are sent.
#pragma once

#include <memory>
#include <utility>

#include "message/record_pool.h"
#include "message/spin_rule.h"

namespace weft::message::detail {

// Not thread-safe: belongs to the loop's thread.
class LoopSends {
 public:
  [[nodiscard]] RecordPool& records() { return records_; }

  // --- Messages that wait for the next step

  // The connection on which the program has sent last, whose messages wait; null: none.
  [[nodiscard]] const Link* burst() const { return burst_.get(); }
  void begin_burst(std::shared_ptr<Link> link) {
    burst_ = std::move(link);
    messages_ = 1;
    waits_ = true;
  }
  void count_message() { ++messages_; }
  // The program goes on to another connection: whether what waits is worth a frame now. A program
  // that sends one message on each connection in turn may come back with more for the same frame.
  [[nodiscard]] bool posts_burst() const { return messages_ >= least_messages; }
  [[nodiscard]] std::shared_ptr<Link> end_burst() { return std::move(burst_); }
  // Whether messages of any connection have waited since the last step.
  [[nodiscard]] bool waits() const { return waits_; }
  void begin_step() { waits_ = false; }

  // --- Sends that complete while they are posted, as within a host

  // Whether it is worth looking for their completions at once; learn() has to follow.
  [[nodiscard]] bool completes_at_once() { return at_once_.allows(); }
  void learn(bool completed) { at_once_.learn(completed); }

 private:
  static constexpr unsigned least_messages = 4;

  RecordPool records_;
  std::shared_ptr<Link> burst_;
  unsigned messages_ = 0;  // of the burst, one after the other
  bool waits_ = false;
  SpinRule at_once_;
};

}  // namespace weft::message::detail
