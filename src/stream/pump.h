// The thread that looks after streams while no call of the application does: it waits for all their
// descriptors, and for their times.
//
// There is one for a process, made with the first stream and never ended: streams are often ended
// in it. After fork(2) the child makes its own; streams of the parent are dead there.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace weft::stream::detail {

class Attendant {
 public:
  virtual ~Attendant() = default;
  // One of its descriptors is readable, or its time has come.
  virtual void attend() noexcept = 0;
};

class Pump {
 public:
  using Clock = std::chrono::steady_clock;
  using Token = std::uint64_t;

  static Pump& instance();

  // From now on it is attended to while it lives. Throws Error.
  [[nodiscard]] Token add(std::weak_ptr<Attendant> attendant);
  void watch(Token token, int fd);
  // No later than that.
  void wake_at(Token token, Clock::time_point when);
  // Before its descriptors are closed. It may still be in attend() afterwards.
  void remove(Token token, std::initializer_list<int> fds);

 private:
  Pump();
  void run();
  [[nodiscard]] int timeout_ms();
  void attend(Token token);
  void attend_late();

  int epoll_;
  int wake_;
  std::mutex mutex_;
  Token last_ = 0;
  std::unordered_map<Token, std::weak_ptr<Attendant>> attendants_;
  std::multimap<Clock::time_point, Token> times_;
};

}  // namespace weft::stream::detail
