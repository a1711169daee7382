// Whose turn it is to wait for what comes in: that of a thread which exists for it, or of a thread
// of the application that would sleep anyway. What wakes the latter reaches it without a hand-over.
//
// The application's thread comes and goes, and is expected back for a moment each time it leaves.
// Where two of them wait, neither could rely on the other: then the thread that exists for it does
// it all.
#pragma once

#include <poll.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

namespace weft {

class Lookout {
 public:
  // A thread of the application is about to wait, and waits while this exists.
  class Waiter {
   public:
    explicit Waiter(Lookout& lookout) : lookout_(lookout), leads_(lookout.enter()) {}
    ~Waiter() { lookout_.leave(leads_); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    // It is the only one: it looks out.
    [[nodiscard]] bool leads() const { return leads_; }

   private:
    Lookout& lookout_;
    bool leads_;
  };

  Lookout() = default;
  Lookout(const Lookout&) = delete;
  Lookout& operator=(const Lookout&) = delete;

  // --- Any thread
  // A thread of the application looks out now.
  [[nodiscard]] bool is_led() const { return led_; }
  // The other thread waits for nothing but its turn: it will look at everything anew.
  [[nodiscard]] bool stands_aside() const { return aside_; }

  // --- The thread that exists for it
  // Until the application's has left and was not back within a moment, or others still wait.
  void stand_aside();

  // It need not stand aside any more.
  void end();

 private:
  bool enter();
  void leave(bool led);

  std::atomic<bool> led_{false};
  std::atomic<bool> aside_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  int waiters_ = 0;
  std::uint64_t turns_ = 0;  // how often somebody began to look out
  bool asleep_ = false;      // until it is woken
  bool called_ = false;      // its turn, at once
  bool ended_ = false;
};

// What is to be done by who looks out. Times are those of CLOCK_MONOTONIC, in nanoseconds.
class Duty {
 public:
  using Time = std::uint64_t;

  // Does what is due, and says when there will be more.
  virtual std::optional<Time> do_due() = 0;
  // Readable where there is something to do.
  [[nodiscard]] virtual int descriptor() const = 0;
  virtual void look() = 0;
  // ppoll(2), but for the time: the number of entries, 0 or -errno.
  [[nodiscard]] virtual int sleep(std::span<pollfd> entries, std::optional<Time> until,
                                  const sigset_t* mask) = 0;

 protected:
  ~Duty() = default;
};

// Sleeps as ppoll(2) does, and sees to the duty meanwhile. The answer is that of Duty::sleep().
[[nodiscard]] int sleep_on_duty(Duty& duty, std::span<pollfd> entries,
                                std::optional<Duty::Time> until, const sigset_t* mask);

}  // namespace weft
