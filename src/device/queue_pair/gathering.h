// Whether a request that was posted may wait for others, so that they leave by one system call.
//
// A program that posts one request after the other and then polls pays one system call for each,
// which is most of what a small message costs. Its first posts after a poll leave at once, so a
// program that waits for each answer never waits here. What it posts beyond that leaves together:
// with its next poll, when enough has come together, or, where it does not poll again soon, with
// the progress thread's next tick (Engine::defer()). Where that happens, the program is not one
// that posts and polls, and nothing is gathered for a while. Nor does a request wait where more
// time has passed since the post before than a call takes that sends: the program may have waited
// for an answer in its memory, and no answer comes sooner.
//
// Not thread safe: the queue pair's lock covers it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "device/system.h"

namespace weft::device {

class Gathering {
 public:
  // Posts that leave at once after each poll.
  static constexpr std::uint32_t eager_posts = 2;
  // What is gathered leaves when it has this many posts or bytes of payload.
  static constexpr std::uint32_t most_posts = 32;
  static constexpr std::uint64_t most_bytes = 16 * 1024;
  // The end of a post with more bytes than this does not wait: see end_may_wait().
  static constexpr std::uint64_t most_with_end_bytes = 256 * 1024;
  static constexpr std::uint64_t patience_ns = 100'000;
  static constexpr std::uint64_t end_patience_ns = 1'000'000;
  // For how long nothing is gathered after the program did not poll in time: at first, and at most.
  static constexpr std::uint64_t shortest_pause_ns = 20'000'000;
  static constexpr std::uint64_t longest_pause_ns = 1'000'000'000;

  // `clock`: in nanoseconds.
  explicit Gathering(std::uint64_t (*clock)() = &sys::now_ns) : clock_(clock) {}

  // A request with so much payload was posted.
  void add(std::uint64_t bytes) { bytes_ += bytes; }
  // A request was posted that never waits, and that no other waits for.
  void add_alone() { posts_ = std::min(posts_ + 1, eager_posts + 1); }
  // Whether may_wait() can be true after the next request.
  [[nodiscard]] bool possible() const { return polls_ && posts_ >= eager_posts; }
  // At the end of a call that posts: whether what it has posted may wait. Otherwise it leaves now,
  // and then left() is to be called.
  [[nodiscard]] bool may_wait() {
    // Counts no further, so that it cannot wrap around.
    posts_ = std::min(posts_ + 1, eager_posts + 1);
    if (!possible()) return false;
    began_ns_ = clock_();
    if (!timely() || waiting_ >= most_posts || bytes_ >= most_bytes) return false;
    ++waiting_;
    used_ = true;
    ended_ns_ = began_ns_;
    return true;
  }
  // After may_wait() has returned false: whether that is so for the number of bytes alone. Then
  // they leave now, but their end, which would make a short segment of TCP, may wait for more.
  // Of much more than a few segments the end is not worth it.
  [[nodiscard]] bool end_may_wait() const {
    return possible() && timely() && bytes_ >= most_bytes && bytes_ <= most_with_end_bytes;
  }
  // They do, after sent(). Returns when look_at_end() is to be called; 0: it will be called anyway.
  [[nodiscard]] std::uint64_t keep_end() {
    waiting_ = 1;
    used_ = true;
    if (end_look_ns_ != 0) return 0;
    end_look_ns_ = clock_() + end_patience_ns;
    return end_look_ns_;
  }
  // May be called too early. Everything leaves afterwards.
  void look_at_end() {
    if (end_look_ns_ == 0 || clock_() < end_look_ns_) return;
    end_look_ns_ = 0;
    if (waits() && is_stale()) missed();
  }
  void left() {
    if (!possible()) return;
    ended_ns_ = clock_();
    longest_gap_ns_ = ended_ns_ - began_ns_;
  }
  // Everything leaves now.
  void sent() {
    waiting_ = 0;
    bytes_ = 0;
  }
  [[nodiscard]] bool waits() const { return waiting_ > 0; }
  // Whether the program has posted nothing for so long that it is unlikely to poll soon.
  [[nodiscard]] bool is_stale() const { return clock_() - ended_ns_ > patience_ns; }
  // Whether anything has waited since the last call.
  [[nodiscard]] bool used() { return std::exchange(used_, false); }

  // A request is posted, and this number of places is taken with it. Fewer than with the one
  // before: the program has polled completions, which not every carrier hears of.
  void look(std::uint32_t taken) {
    if (taken <= std::exchange(taken_, taken)) polled();
  }
  // The program polls, or sleeps in a call that does what polling does.
  void polled() {
    polls_ = true;
    posts_ = 0;
  }
  // The program did not poll in time.
  void missed() {
    polls_ = false;
    pause_ns_ = std::clamp(pause_ns_ * 2, shortest_pause_ns, longest_pause_ns);
    pause_end_ns_ = clock_() + pause_ns_;
  }

 private:
  [[nodiscard]] bool timely() const {
    return posts_ > eager_posts && began_ns_ - ended_ns_ <= longest_gap_ns_ &&
           began_ns_ >= pause_end_ns_;
  }

  std::uint64_t (*clock_)();
  std::uint32_t posts_ = 0;    // calls since the last poll
  std::uint32_t waiting_ = 0;  // of them, those whose requests wait
  std::uint64_t bytes_ = 0;    // posted since the last sendmsg(2)
  std::uint32_t taken_ = 0;    // of look()
  bool used_ = false;
  bool polls_ = false;          // the program has polled this queue pair itself, since missed()
  std::uint64_t began_ns_ = 0;  // when the last call that posted began to send
  std::uint64_t ended_ns_ = 0;  // and its end
  std::uint64_t longest_gap_ns_ = 0;  // as long as the last call that sent
  std::uint64_t end_look_ns_ = 0;     // see keep_end()
  std::uint64_t pause_ns_ = 0;
  std::uint64_t pause_end_ns_ = 0;
};

}  // namespace weft::device
