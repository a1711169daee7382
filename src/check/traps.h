// Watches memory of the program, and gets a call in the thread that accesses it: SIGTRAP by the
// debug registers (debug_registers.h).
//
// The handler passes every other SIGTRAP on to the program's, which base/trap_action.h keeps. Where
// a program can replace ours, because `weft run` has not started it, nothing is watched any more
// (may_watch()). Nor is anything while a debugger traces the process, which would stop at each
// trap.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "check/debug_registers.h"

namespace weft::check {

// --- Accesses of the device ----------------------------------------------------------------------

// While one exists, accesses of its thread are the device's and not the program's. Any depth.
class InsideDevice {
 public:
  InsideDevice() { enter(); }
  ~InsideDevice() { leave(); }
  InsideDevice(const InsideDevice&) = delete;
  InsideDevice& operator=(const InsideDevice&) = delete;

  // The same for calls in which a thread may be cancelled, whose frame must not need a destructor.
  static void enter();
  static void leave();
};

// --- Watched memory ------------------------------------------------------------------------------

// An access of the program, as the handler finds it.
struct Trap {
  static constexpr std::size_t most_frames = 48;

  std::uintptr_t instruction = 0;  // behind the one that has made the access
  std::array<std::uintptr_t, most_frames> frames{};
  std::size_t count = 0;

  // Fills the frames with the stack that was interrupted at `instruction`.
  void take_stack();
  [[nodiscard]] std::span<const std::uintptr_t> stack() const { return {frames.data(), count}; }
};

// Uses one debug register in each thread of the process that does not block SIGTRAP: threads of
// Weft block it. arm() and disarm() are called by one thread at a time.
class Watchpoint {
 public:
  // Called in the signal handler. Two threads may be in it at once.
  class Taker {
   public:
    virtual void take(Trap& trap) = 0;

   protected:
    ~Taker() = default;
  };

  explicit Watchpoint(Taker& taker);
  Watchpoint(const Watchpoint&) = delete;
  Watchpoint& operator=(const Watchpoint&) = delete;

  // Returns 0 or an errno value. `counts_writes`: another register counts the writes alone.
  [[nodiscard]] int arm(std::uint64_t first, std::uint32_t bytes, bool counts_writes = false);
  // Returns when no thread is in take() any more.
  void disarm();
  [[nodiscard]] bool is_armed() const { return armed_; }
  // Ends and begins the traps. These and writes() may be called in take(), and enable() elsewhere
  // while it is armed.
  void stop();
  void enable();
  // The writes of the program so far.
  [[nodiscard]] std::uint64_t writes() const;
  // In the child of a fork(2): the descriptors are those of the parent's registers.
  void abandon_after_fork();

 private:
  friend struct TrapHandler;
  static constexpr std::size_t most_threads = 64;

  struct Files {
    std::array<std::atomic<int>, most_threads> files{};
    std::atomic<std::size_t> count{0};

    // Returns 0 or an errno value.
    [[nodiscard]] int open(std::span<const int> threads, const WatchedBytes& watched,
                           std::uint64_t tag);
    void close();
  };

  Taker& taker_;
  std::size_t index_ = 0;
  std::uint64_t generation_ = 0;
  std::atomic<std::uint64_t> tag_{0};  // of the traps that are meant; 0: none
  std::atomic<int> handlers_{0};       // threads that are in the handler
  Files traps_;
  Files counts_;
  bool armed_ = false;
};

// Whether memory can be watched now. Installs the handler at the first call. The first `false` that
// is for good writes a line for the user.
[[nodiscard]] bool may_watch();

// Whether something is watched although the program has replaced the handler: then its own one
// would be called for traps.
[[nodiscard]] bool must_release();

// Copies bytes of this process, by the kernel: where this thread's access would raise a trap. May
// be called in take().
[[nodiscard]] bool copy_unseen(void* to, std::uint64_t from, std::size_t bytes);

}  // namespace weft::check
