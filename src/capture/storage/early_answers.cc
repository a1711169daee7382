#include "capture/storage/early_answers.h"

#include <algorithm>
#include <utility>

namespace weft::capture {

bool EarlyAnswers::keep(const Kept& one) {
  // The command has its answer already, so one of the two was the answer to another command.
  if (const auto twice = std::ranges::find(taken_, one.answer.id); twice != taken_.end()) {
    taken_.erase(twice);
    lose();
  }
  if (matched_ < enough_matched || kept_.size() >= most_kept) return false;
  kept_.push_back(one);
  return true;
}

std::optional<EarlyAnswers::Kept> EarlyAnswers::take(std::uint64_t id) {
  std::erase(taken_, id);
  const auto found = std::ranges::find(kept_, id, [](const Kept& one) { return one.answer.id; });
  if (found == kept_.end()) return std::nullopt;
  taken_.push_back(id);
  if (taken_.size() > most_kept) taken_.pop_front();
  Kept one = std::move(*found);
  kept_.erase(found);
  return one;
}

std::optional<EarlyAnswers::Kept> EarlyAnswers::take_expired(std::uint64_t frame) {
  if (kept_.empty() || frame <= kept_.front().extent.first.frame + most_frames) return std::nullopt;
  return take_oldest();
}

std::optional<EarlyAnswers::Kept> EarlyAnswers::take_oldest() {
  if (kept_.empty()) return std::nullopt;
  Kept one = std::move(kept_.front());
  kept_.pop_front();
  return one;
}

}  // namespace weft::capture
