// What can be waited for, whoever waits: a thread in poll(2), or a coroutine.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace weft::connection::detail {

// Descriptors to wait for; none of them is owned.
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

class Condition {
 public:
  Condition() = default;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;
  virtual ~Condition() = default;

  // Looks, without waiting; does what there is to do on the way. Throws where it cannot come true.
  [[nodiscard]] virtual bool holds() = 0;
  // Where holds() said no: it is worth another look when one of them is readable.
  [[nodiscard]] virtual Descriptors descriptors() const = 0;
};

}  // namespace weft::connection::detail
