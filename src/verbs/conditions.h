// Conditions that a thread in poll(2) or a coroutine in an event loop can wait for.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace weft::verbs::detail {

// A list of descriptors to wait for; it does not own them.
class Descriptors {
 public:
  static constexpr std::size_t most = 4;

  Descriptors() = default;
  Descriptors(std::initializer_list<int> fds) {
    for (const int fd : fds) fds_[count_++] = fd;
  }
  [[nodiscard]] std::span<const int> all() const { return {fds_.data(), count_}; }
  friend bool operator==(const Descriptors&, const Descriptors&) = default;

 private:
  std::array<int, most> fds_{};
  std::size_t count_ = 0;
};

// Something to wait for: test it, and wait for its descriptors while it does not hold.
class Condition {
 public:
  Condition() = default;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;
  virtual ~Condition() = default;

  // Tests the condition without blocking, and does the work that is due. Throws if it can never
  // become true.
  [[nodiscard]] virtual bool holds() = 0;
  // The descriptors to wait for after holds() has returned false: test again when one is readable.
  [[nodiscard]] virtual Descriptors descriptors() const = 0;
};

}  // namespace weft::verbs::detail
