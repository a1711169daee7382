// Answers of one connection that were captured before their commands: two packets that follow each
// other closely may change places, above all if they come from two files or two ports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "capture/storage/storage_message.h"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

// An answer without a command may also be the answer to one that was not captured, and the next
// command with its id another one. So answers are kept only where those before them had commands:
// from the beginning of a connection on, but not soon after a gap, nor after a command that then
// had two answers.
class EarlyAnswers {
 public:
  struct Kept {
    StorageAnswer answer;
    Extent extent;
    Origin origin;
  };

  // An answer came after its command.
  void note_matched() { ++matched_; }
  // No command is missing so far.
  void note_all_matched() { matched_ = enough_matched; }
  // Commands may be missing.
  void lose() { matched_ = 0; }
  // Returns whether the answer waits for its command now. Otherwise it has none.
  bool keep(const Kept& one);
  // Removes the answer to a command that has come.
  std::optional<Kept> take(std::uint64_t id);
  // Removes the oldest answer whose command would have come before this frame; nullopt: none.
  std::optional<Kept> take_expired(std::uint64_t frame);
  // Removes the oldest answer; nullopt: none.
  std::optional<Kept> take_oldest();

 private:
  // As for copies of packets (docs/dissect.md).
  static constexpr std::uint64_t most_frames = 64;
  static constexpr std::size_t most_kept = 64;
  static constexpr std::uint64_t enough_matched = 4;

  std::deque<Kept> kept_;            // in the order in which they came
  std::deque<std::uint64_t> taken_;  // ids of the last commands that take() had an answer for
  std::uint64_t matched_ = 0;        // answers in a row
};

}  // namespace weft::capture
