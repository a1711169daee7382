// Of those who wait for the outcomes of one queue, one at a time looks after it: a completion
// channel wakes whom it likes, and only one of them could use what it says.
#pragma once

#include <deque>
#include <mutex>
#include <optional>

#include "connection/waiting.h"

namespace weft::connection::detail {

class Turn;

class Turns {
 private:
  friend class Turn;
  std::mutex lock_;
  std::deque<Turn*> waiting_;  // the first one has its turn
};

// From joining to leaving.
class Turn {
 public:
  explicit Turn(Turns& turns);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  [[nodiscard]] bool is_mine() const;
  // Of one that had to wait: readable when it has its turn, or after wake().
  [[nodiscard]] int fd() const { return flag_->fd(); }
  // Whoever looks after the queue has found what this one waits for.
  void wake() noexcept;

 private:
  Turns& turns_;
  std::optional<EventFlag> flag_;
};

}  // namespace weft::connection::detail
