// The check polled-write: a program that reads memory again and again until a Write of its peer
// changes it, and takes this for the arrival of the data.
//
// The checker does not know which byte a program waits for. So it compares the memory of regions
// that peers may write to, finds the bytes that the last Writes have changed, and watches one of
// these at a time: a program that waits for it once more reads it through the debug register. A
// finding needs that one instruction has read the byte several times, that it then has another
// value which no write of the program has made, that a peer has written to the region, and that no
// receive has completed and no peer has made an atomic in the region meanwhile: behind an atomic,
// too, the Writes before it are complete.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "check/inside.h"
#include "check/pace.h"
#include "check/regions.h"
#include "check/report.h"
#include "check/requests.h"
#include "check/stacks.h"
#include "check/traps.h"

namespace weft::check {

// Thread-safe.
class PolledWrites {
 public:
  // A region that peers may write to, and the end of one. Others are left out.
  void add(const MemoryRegion& region);
  void remove(const ibv_mr* mr);
  // The program has polled the completion of a receive, by which it knows that earlier Writes
  // are complete.
  void received() { taker_.receives.fetch_add(1, std::memory_order_relaxed); }
  // Looks for memory to watch, now and then. To be called where the program calls verbs.
  void look();
  [[nodiscard]] bool has_found() const { return taker_.found; }
  [[nodiscard]] std::vector<Finding> take_findings(Stacks& stacks);
  // Ends what is watched now; and for good, at the exit.
  void release();
  void stop();

  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child();

 private:
  // A region, and what its memory held at the last look.
  struct Watched {
    const ibv_mr* mr = nullptr;
    MemoryRange memory;
    StackId made = 0;
    std::uint64_t writes = 0;  // of peers
    MemoryRange window{};      // the part that is compared
    std::uint64_t moves = 0;   // of the window
    std::vector<std::byte> bytes{};
  };
  // A byte that the program may be waiting for.
  struct Candidate {
    const ibv_mr* mr = nullptr;
    std::uint64_t address = 0;
    unsigned tries = 0;
  };
  // What the traps of one byte have shown. Two threads may be in the handler: the second one
  // leaves.
  struct Taker final : Watchpoint::Taker {
    Taker() : watchpoint(*this) {}
    void take(Trap& trap) override;
    void begin(std::uint64_t at);

    struct Reader {
      std::uintptr_t instruction = 0;
      unsigned times = 0;  // without a change
    };
    [[nodiscard]] unsigned& times_of(std::uintptr_t instruction);
    void restart(std::byte now, std::uint64_t writes_now, std::uint64_t receives_now);

    Watchpoint watchpoint;
    std::atomic<std::uint64_t> receives{0};
    std::atomic<bool> busy{false};
    std::atomic<bool> found{false};
    std::atomic<bool> exhausted{false};
    std::uint64_t address = 0;
    // Read and set outside of the handler as well, while the byte is watched.
    std::atomic<unsigned> left{0};   // traps until it is exhausted
    std::atomic<unsigned> reads{0};  // traps without a write of the program
    bool begun = false;
    std::byte value{};
    std::uint64_t writes = 0;  // of the program
    std::uint64_t received = 0;
    std::array<Reader, 4> readers{};
    Trap trap;
  };

  [[nodiscard]] Watched* find(const ibv_mr* mr);
  // False if no Write has come since the last time.
  bool compare(Watched& region);
  void move_window(Watched& region);
  void add_candidate(const ibv_mr* mr, std::uint64_t address);
  [[nodiscard]] bool is_waited_for() const;
  void choose(std::uint64_t now_ns);
  void end();

  InsideMutex mutex_;
  std::deque<Watched> regions_;
  std::size_t next_ = 0;              // the region that is compared next
  std::deque<Candidate> candidates_;  // the newest first
  Candidate current_;
  // Of peers to its region, when it was armed.
  std::uint64_t writes_at_first_ = 0;
  std::uint64_t atomics_at_first_ = 0;
  unsigned looks_ = 0;          // with new Writes, since it was armed
  std::uint64_t pause_ns_ = 0;  // until then nothing is watched, after a finding
  Pace comparisons_{64, 1'000'000};
  Pace armings_{64, 1'000'000};
  bool stopped_ = false;
  Taker taker_;
};

}  // namespace weft::check
