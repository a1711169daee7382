// Decides when an initiator sends its ready-to-receive message (RFC 6581 §5.1) again. Some
// responders lose what arrives right after their reply: the kernel's siw ignores it until more
// arrives, so both sides would wait for ever. An empty Write is valid at any time, and more of them
// do no harm.
//
// The clock starts with the first on_time().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::iwarp {

class RtrRepeat {
 public:
  static constexpr std::uint64_t never_ns = UINT64_MAX;
  // When a message is due, counted from the start of the clock.
  static constexpr std::array<std::uint64_t, 2> after_ns{20'000'000, 200'000'000};

  // The message has been built for the first time.
  void arm() { next_ = 0; }
  // The peer has sent something: it has received the message.
  void stop() {
    next_ = after_ns.size();
    due_ = false;
  }

  void on_time(std::uint64_t now_ns) {
    if (next_ == after_ns.size()) return;
    if (started_ns_ == never_ns) started_ns_ = now_ns;
    for (; now_ns >= deadline_ns(); ++next_) due_ = true;
  }
  // When on_time() should be called next; never_ns if not at all.
  [[nodiscard]] std::uint64_t deadline_ns() const {
    if (next_ == after_ns.size() || started_ns_ == never_ns) return never_ns;
    return started_ns_ + after_ns.at(next_);
  }
  [[nodiscard]] bool running() const { return next_ != after_ns.size(); }
  // The message should be sent again as soon as possible.
  [[nodiscard]] bool due() const { return due_; }
  void sent() { due_ = false; }

 private:
  std::size_t next_ = after_ns.size();
  std::uint64_t started_ns_ = never_ns;
  bool due_ = false;
};

}  // namespace weft::iwarp
