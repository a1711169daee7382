// StreamSet: an epoll set of the program, as far as it has streams. epoll_wait(2) first looks at
// the rings of streams that are in use, which costs no system call. Only before the program sleeps,
// peers are asked to ring (stream::Options::bell), and the kernel learns what epoll_ctl(2) has
// changed meanwhile: a program that wants to send now, and to receive next, changes nothing then.
//
// A socket is listed here while its program uses it: its peer need not ring, and the program's
// descriptor is not kept readable. What is not listed is as ready for the kernel as its stream is
// (VisibleSocket), so listing can end at any time, by leave(). It does for everything that only the
// kernel can do: edges, other ways to wait for the socket or the set, copies of descriptors, the
// end of the connection.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/spin_rule.h"
#include "weft/stream/stream.hpp"

namespace weft::interpose {

class Socket;

// The part of a Socket that its set needs at each look.
struct SetMember {
  // In `ready`: the stream has ended, has failed, or is shut down. The kernel shows that.
  static constexpr std::uint32_t over = EPOLLHUP;

  std::atomic<class StreamSet*> set{nullptr};
  // The set looks at this socket before the program sleeps.
  std::atomic<bool> listed{false};
  std::atomic<std::uint32_t> ready{0};  // EPOLLIN, EPOLLOUT, over
  std::atomic<int> fd{-1};
};

// Thread-safe. No stream, and no table of sockets, may be locked by the caller.
class StreamSet {
 public:
  // The set of an epoll descriptor of the program; null if there are no streams in it. Lives until
  // the process ends.
  [[nodiscard]] static StreamSet* of(int epoll);

  // Calls `visit` with the descriptors of sets from `first` to `last`.
  static void for_each_in(unsigned first, unsigned last, void (*visit)(int));

  // --- epoll_ctl(2)
  // Carries the call out, or leaves it to be done before the program sleeps: 0 or an errno value.
  // Nothing if the kernel is to be called.
  [[nodiscard]] std::optional<int> change(int operation, int fd, const epoll_event* event);
  // The kernel has added or changed a socket. Has no effect if it cannot be listed.
  static void note_added(int epoll, int fd, const std::shared_ptr<Socket>& socket,
                         const epoll_event& event);

  // --- epoll_wait(2)
  [[nodiscard]] int epoll() const { return epoll_; }
  // Whether the kernel is to be asked for other events now, by ask_kernel().
  [[nodiscard]] bool asks_kernel();
  // As epoll_pwait(2) without waiting; reports nothing that the program does not want any more.
  [[nodiscard]] int ask_kernel(epoll_event* events, int most, const sigset_t* mask);
  // Adds the events of listed sockets that are ready behind the first `found` ones, which the
  // kernel has reported. Returns how many there are then.
  [[nodiscard]] int look(epoll_event* events, int found, int most);
  // Looks for a moment, where that is of use. Returns as look().
  [[nodiscard]] int spin(epoll_event* events, int most);
  // For as long as a thread sleeps in the kernel. `may_sleep` is false if a socket has become ready
  // meanwhile.
  class Sleep {
   public:
    explicit Sleep(StreamSet& set) noexcept : set_(set), may_sleep_(set.begin_sleep()) {}
    ~Sleep() {
      if (may_sleep_) set_.end_sleep();
    }
    Sleep(const Sleep&) = delete;
    Sleep& operator=(const Sleep&) = delete;
    [[nodiscard]] bool may_sleep() const { return may_sleep_; }

   private:
    StreamSet& set_;
    bool may_sleep_;
  };

  // --- Sockets
  // The program is about to receive from it.
  void note_use(Socket& socket);
  // From now on the kernel shows it.
  void leave(Socket& socket);
  // Its last descriptor is closed.
  void remove(Socket& socket);
  // The same for all of them; `closed`: the program closes the set.
  void leave_all(bool closed);
  // Before fork(2): the child has the same sets.
  static void leave_every_set();
  // In the child: other threads may have held the locks.
  static void forget_all();

 private:
  using Clock = std::chrono::steady_clock;
  struct Interest {
    bool present = false;
    epoll_event event{};
  };
  struct Member {
    std::shared_ptr<Socket> socket;
    std::shared_ptr<stream::Stream> stream;
    int fd = -1;
    Interest wanted;     // by the program
    Interest in_kernel;  // what the kernel has
    bool listed = false;
    unsigned idle_sleeps = 0;
    unsigned failures = 0;  // sleeps in which the peer would not have rung
  };

  explicit StreamSet(int epoll) : epoll_(epoll) {}
  [[nodiscard]] bool begin_sleep() noexcept;
  void end_sleep();
  void list(Member& member);
  void unlist(Member& member);
  [[nodiscard]] static bool show_to_kernel(Member& member);
  [[nodiscard]] Member* member_of(const Socket& socket);
  void apply(Member& member) const;
  void drop(Member& member);
  [[nodiscard]] static std::uint32_t ready_events(const Member& member);
  [[nodiscard]] static bool kernel_may_show(const Member& member);
  void drop_those_that_are_over();

  const int epoll_;
  std::mutex mutex_;                                          // guards what follows
  std::unordered_map<int, std::unique_ptr<Member>> members_;  // by descriptor
  std::vector<Member*> listed_;
  std::size_t first_ = 0;       // in listed_: where the next look begins
  int sleepers_ = 0;            // threads that wait in the kernel
  bool is_waited_for_ = false;  // by the calls of this library
  bool is_kernels_ = false;     // nothing is listed any more
  Clock::time_point asked_{};
  SpinRule spin_rule_;
};

}  // namespace weft::interpose
