// Whether a request that was posted may wait for others, so that they leave by one system call.
//
// A program that posts one request after the other and then polls pays one sendmsg(2) for each,
// which is most of what a small message costs. Its first posts after a poll leave at once, so a
// program that waits for each answer never waits here. What it posts beyond that leaves together:
// with its next poll, when enough has come together, or, where it does not poll again soon, with
// the progress thread's next tick (Engine::defer()). Where that happens, the program is not one
// that posts and polls, and nothing is gathered for a while.
//
// Not thread safe: the queue pair's lock covers it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/system.h"

namespace weft::device {

class Gathering {
 public:
  // Posts that leave at once after each poll.
  static constexpr std::uint32_t eager_posts = 2;
  // What is gathered leaves when it has this many posts or bytes of payload.
  static constexpr std::uint32_t most_posts = 32;
  static constexpr std::uint64_t most_bytes = 16 * 1024;
  // For how long nothing is gathered after the program did not poll in time: at first, and at most.
  static constexpr std::uint64_t shortest_pause_ns = 20'000'000;
  static constexpr std::uint64_t longest_pause_ns = 1'000'000'000;

  // A request with so much payload was posted.
  void add(std::uint64_t bytes) { bytes_ += bytes; }
  // At the end of a call that posts: whether what it has posted may wait.
  [[nodiscard]] bool may_wait() {
    // Counts no further, so that it cannot wrap around.
    posts_ = std::min(posts_ + 1, eager_posts + 1);
    if (!polls_ || posts_ <= eager_posts) return false;
    if (waiting_ >= most_posts || bytes_ >= most_bytes) return false;
    if (pause_end_ns_ != 0 && sys::now_ns() < pause_end_ns_) return false;
    ++waiting_;
    return true;
  }
  // Everything leaves now.
  void sent() {
    waiting_ = 0;
    bytes_ = 0;
  }
  [[nodiscard]] bool waits() const { return waiting_ > 0; }

  // The program polls, or sleeps in a call that does what polling does.
  void polled() {
    polls_ = true;
    posts_ = 0;
  }
  // The program did not poll in time.
  void missed() {
    polls_ = false;
    pause_ns_ = std::clamp(pause_ns_ * 2, shortest_pause_ns, longest_pause_ns);
    pause_end_ns_ = sys::now_ns() + pause_ns_;
  }

 private:
  std::uint32_t posts_ = 0;    // calls since the last poll
  std::uint32_t waiting_ = 0;  // of them, those whose requests wait
  std::uint64_t bytes_ = 0;    // posted since the last sendmsg(2)
  bool polls_ = false;         // the program has polled this queue pair itself, since missed()
  std::uint64_t pause_ns_ = 0;
  std::uint64_t pause_end_ns_ = 0;
};

}  // namespace weft::device
