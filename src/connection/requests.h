// Which of the user's requests a completion stands for. Requests that are not signaled complete
// with the next one that is; this sees to it that there is always one soon enough.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "weft/verbs/completion.hpp"

namespace weft::connection::detail {

// Somebody who waits for the outcome of one request.
struct Claim;

class Requests {
 public:
  // Marks our own ids in the upper 16 bits.
  static constexpr std::uint64_t mark = std::uint64_t{0x5743} << 48;

  explicit Requests(std::uint32_t depth) : depth_(depth) {}

  [[nodiscard]] bool full() const { return entries_.size() >= depth_; }
  [[nodiscard]] std::size_t room() const { return depth_ - entries_.size(); }

  struct Ticket {
    std::uint64_t id;  // to post with
    bool signaled;     // whether it must be signaled
  };
  // `wanted`: the user wants an outcome; `ours`: not the user's at all.
  Ticket add(std::uint64_t user_id, bool wanted, bool ours, Claim* claim = nullptr);
  // Undoes the last add(): it could not be posted.
  void drop_last();

  struct Finished {
    std::uint64_t user_id;
    bool tell;     // the user is to hear of it
    Claim* claim;  // in this way; null: in the common one
  };
  // A completion with one of our ids: it and everything before it is done.
  [[nodiscard]] std::optional<Finished> finish(std::uint64_t id, bool ok);

  // Nobody waits for that one any more: its outcome goes the common way.
  void disown(const Claim& claim);

  [[nodiscard]] static bool is_ours(std::uint64_t id) { return id >> 48 == mark >> 48; }

 private:
  struct Entry {
    std::uint64_t user_id;
    bool wanted;
    bool ours;
    bool signaled;
    Claim* claim;
  };

  std::uint32_t depth_;
  std::deque<Entry> entries_;
  std::uint64_t first_ = 0;  // the number of entries_.front()
  std::uint32_t unsignaled_ = 0;
  std::uint32_t unsignaled_before_ = 0;  // the last add()
};

}  // namespace weft::connection::detail
