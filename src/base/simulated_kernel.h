// What stands in for the kernel where a device belongs to a simulation (src/simulation): the clock,
// random numbers, sockets, and the waiting for them. The device makes its system calls as always
// (device/system.h), and those for a simulation end here. So all of it runs unchanged: connecting,
// the protocol, timeouts, faults.
//
// A simulation belongs to one thread, and to those of its programs, of which one runs at a time.
// Outside of it a call costs one comparison and a branch.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/event_fd.h"

namespace weft {

// Thrown where a program of a simulation waits although it was killed, so that it unwinds. No
// std::exception: a program that catches errors and tries again must end as well.
struct ProgramKilled {};

// A timer of a simulation. Its descriptor is readable from the time on, as that of timerfd(2).
struct SimulatedTimer {
  EventFd event;
  std::uint64_t due_ns = 0;  // 0: not set
};

// Not thread-safe: for the thread that has entered it. Calls with a descriptor return what the
// system call of that name returns, or -errno.
class SimulatedKernel : public std::enable_shared_from_this<SimulatedKernel> {
 public:
  // Descriptors from here on are those of simulations. The kernel gives no such numbers: they are
  // above the largest value of fs.nr_open.
  static constexpr int first_descriptor = 1 << 30;
  [[nodiscard]] static bool owns(int fd) { return fd >= first_descriptor; }

  // The simulation that the calling thread has entered; null outside.
  [[nodiscard]] static SimulatedKernel* current() {
    if (entered_.load(std::memory_order_relaxed) == 0) [[likely]]
      return nullptr;
    return of_this_thread();
  }
  // False where the thread is in a simulation already.
  [[nodiscard]] bool enter();
  void leave();

  virtual ~SimulatedKernel() = default;

  [[nodiscard]] virtual std::uint64_t now_ns() const = 0;
  virtual void fill_random(MutableBytes out) = 0;
  // Those of the host whose device is being opened.
  [[nodiscard]] virtual std::vector<sockaddr_storage> addresses() const = 0;

  virtual int socket(int family, int type) = 0;
  virtual int bind(int fd, const sockaddr* address) = 0;
  virtual int listen(int fd, int backlog) = 0;
  virtual int accept(int fd, sockaddr_storage* address) = 0;
  virtual int connect(int fd, const sockaddr* address) = 0;
  virtual int shutdown(int fd, int how) = 0;
  virtual int close(int fd) = 0;
  virtual int set_option(int fd, int level, int name, const void* value, socklen_t bytes) = 0;
  virtual int get_option(int fd, int level, int name, void* value, socklen_t* bytes) = 0;
  virtual int local_address(int fd, sockaddr_storage* address) = 0;
  virtual int peer_address(int fd, sockaddr_storage* address) = 0;
  virtual std::ptrdiff_t send(int fd, std::span<const iovec> pieces) = 0;
  virtual std::ptrdiff_t receive(int fd, std::span<const iovec> pieces) = 0;
  virtual std::ptrdiff_t send_message(int fd, const msghdr& message) = 0;
  virtual std::ptrdiff_t receive_message(int fd, msghdr& message) = 0;
  virtual bool peer_closed(int fd) = 0;

  // In place of a thread that waits in epoll: one for each device.
  class Watcher {
   public:
    // What watch() was given, and what has happened, as epoll reports it.
    virtual void dispatch_simulated(std::uint64_t token, std::uint32_t events) = 0;
    virtual void run_simulated_deadlines() = 0;
    // Whether anything waits for a deadline that is over by then.
    [[nodiscard]] virtual bool has_deadline_by(std::uint64_t until_ns) = 0;

   protected:
    ~Watcher() = default;
  };
  // Returns the number by which the other functions know the watcher, until remove().
  [[nodiscard]] virtual std::size_t add(Watcher& watcher) = 0;
  virtual void remove(std::size_t watcher) = 0;
  // As epoll_ctl(2). 0 or -errno.
  virtual int watch(std::size_t watcher, int fd, std::uint32_t events, std::uint64_t token) = 0;
  virtual int change(int fd, std::uint32_t events) = 0;
  virtual void unwatch(int fd) = 0;
  virtual void set_deadline(std::size_t watcher, std::uint64_t deadline_ns) = 0;

  // The program has looked for something that is not there yet.
  virtual void polled() = 0;
  // The same for a look that often precedes a wait.
  virtual void looked() = 0;
  // The program waits, as ppoll(2) for descriptors of the real kernel; the simulation goes on
  // meanwhile. Returns the number of entries, 0 at `until_ns`, or -errno: EDEADLK where nothing
  // will ever happen again, ECANCELED in a program that was killed.
  [[nodiscard]] virtual int poll(std::span<pollfd> entries,
                                 std::optional<std::uint64_t> until_ns) = 0;
  // Makes the timer readable at its time, unless that is changed before.
  virtual void start(const std::shared_ptr<SimulatedTimer>& timer) = 0;

  // --- Programs, each a process with a thread (simulation/programs.h)

  // What these layers keep for the process that runs now. Each is destroyed with the process, in
  // this order and in its thread.
  enum class Keeper : std::uint8_t { stream, provider };
  // Null outside of programs.
  [[nodiscard]] virtual std::shared_ptr<void>* kept(Keeper keeper) = 0;
  // Starts a thread of the process that runs now, which ends with it.
  virtual void start_thread(std::function<void()> function) = 0;
  // Throws ProgramKilled where the calling program was killed, unless it unwinds already.
  virtual void end_if_killed() = 0;

 private:
  [[nodiscard]] static SimulatedKernel* of_this_thread();

  static std::atomic<int> entered_;  // by threads of this process
};

}  // namespace weft
