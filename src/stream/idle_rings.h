// Decides when the pages of rings are given back to the kernel: once nothing was sent for a while.
//
// Each side gives back what it has written to, its own ring and that of the peer in shared memory:
// only the writer knows that nothing is being written, and that all of it has been read. The first
// bytes of a ring stay, so that streams with little traffic never give anything back.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

#include "weft/stream/options.hpp"

namespace weft::stream::detail {

// Without a clock of its own: `now` is an argument. Not thread-safe.
class IdleRings {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::uint32_t kept_bytes = default_buffer_bytes;
  static constexpr std::chrono::seconds first_pause{1};
  static constexpr std::chrono::seconds longest_pause{64};

  // The pages may be given back: no adapter has pinned them.
  void enable() { kept_bytes_ = kept_bytes; }
  // A ring is used up to this offset.
  void note_use(std::uint32_t end) { used_ = used_ || end > kept_bytes_; }
  // Whether plan() is to be called.
  [[nodiscard]] bool wants_check() const { return used_ && !check_at_; }
  // Returns when due() is to be called. `sent`: the bytes that the stream has sent by now.
  [[nodiscard]] Time plan(Time now, std::uint64_t sent);
  // When due() is to be called, if that is planned.
  [[nodiscard]] std::optional<Time> planned() const { return check_at_; }
  // Whether the planned time has come. If so, nothing is planned any more.
  [[nodiscard]] bool due(Time now);
  // Whether anything was sent since plan().
  [[nodiscard]] bool is_quiet(std::uint64_t sent) const { return sent == sent_; }
  void given_back() { used_ = false; }

 private:
  std::uint32_t kept_bytes_ = std::numeric_limits<std::uint32_t>::max();
  bool used_ = false;  // behind the bytes that stay
  std::optional<Time> check_at_;
  std::uint64_t sent_ = 0;
  std::chrono::seconds pause_ = first_pause;
};

// A stream that is quiet, but whose peer does not read, is looked at less and less often.
inline IdleRings::Time IdleRings::plan(Time now, std::uint64_t sent) {
  pause_ = is_quiet(sent) ? std::min(2 * pause_, longest_pause) : first_pause;
  sent_ = sent;
  check_at_ = now + pause_;
  return *check_at_;
}

inline bool IdleRings::due(Time now) {
  if (!check_at_ || now < *check_at_) return false;
  check_at_.reset();
  return true;
}

}  // namespace weft::stream::detail
