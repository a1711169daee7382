#include "cli/ordered_output.h"

#include <utility>

namespace weft::cli {

void OrderedOutput::Part::write(std::string_view text) {
  if (!has_turn_) {
    bool waits = false;
    {
      const std::lock_guard lock(all_.mutex_);
      waits = all_.turn_ != number_;
    }
    if (waits && kept_.size() + text.size() <= most_kept_bytes) {
      kept_ += text;
      return;
    }
    wait_for_turn();
  }
  all_.write_(text);
}

// A part prints without the lock, because the other parts wait for their turn.
void OrderedOutput::Part::wait_for_turn() {
  if (!has_turn_) {
    std::unique_lock lock(all_.mutex_);
    all_.ended_.wait(lock, [this] { return all_.turn_ == number_; });
    has_turn_ = true;
  }
  if (kept_.empty()) return;
  const std::string kept = std::exchange(kept_, {});
  all_.write_(kept);
}

OrderedOutput::Part::~Part() {
  {
    std::unique_lock lock(all_.mutex_);
    all_.ended_.wait(lock, [this] { return all_.turn_ == number_; });
    ++all_.turn_;
  }
  all_.ended_.notify_all();
}

}  // namespace weft::cli
