// Replacements of the functions that limit the memory and the threads of the process.
//
// Servers limit their address space and their data to what they need themselves. Streams need
// memory as well, and the allocator of the C library reserves 64 MiB of address space for each
// thread that allocates, also for the threads of this library. So the limits that a program sets
// count from what the process has at that time, and its threads share one reserve from then on.
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <exception>

#include "interpose/accept_thread.h"
#include "interpose/device.h"
#include "interpose/export.h"
#include "interpose/next.h"

using namespace weft::interpose;

namespace {

constinit next::Function<int(int, const rlimit*)> next_setrlimit{"setrlimit"};
constinit next::Function<int(int, rlimit*)> next_getrlimit{"getrlimit"};

// What streams may need later.
constexpr rlim_t room_for_streams = rlim_t{64} << 20;

// The limits as the program has set them, and as the kernel has them.
struct Raised {
  std::atomic<rlim_t> wanted{RLIM_INFINITY};
  std::atomic<rlim_t> set{RLIM_INFINITY};
};
struct RaisedLimits {
  Raised soft;
  Raised hard;
};
constinit RaisedLimits raised_address_space;
constinit RaisedLimits raised_data;

RaisedLimits* raised_limits(int resource) {
  if (resource == RLIMIT_AS) return &raised_address_space;
  return resource == RLIMIT_DATA ? &raised_data : nullptr;
}

// The address space or the data of this process, proc(5). 0 where /proc is missing.
rlim_t memory_of_process(int resource) {
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  std::array<char, 128> text{};
  const ssize_t bytes = next::read(fd, text.data(), text.size() - 1);
  next::close(fd);
  unsigned long all = 0;
  unsigned long data = 0;
  if (bytes <= 0 || std::sscanf(text.data(), "%lu %*u %*u %*u %*u %lu", &all, &data) != 2) return 0;
  return (resource == RLIMIT_AS ? all : data) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

// `most`: a hard limit can only be lowered. A limit beyond it is the kernel's to refuse.
rlim_t raise_limit(rlim_t limit, rlim_t by, rlim_t most) {
  if (limit > most || limit >= RLIM_INFINITY - by) return limit;
  return limit + by > most ? most : limit + by;
}

// Streams start their threads with the first listener and the first connection. After this limit
// the kernel may refuse that, unless the program runs as root. A shell sets it too, for others. So
// the threads start now in a program that listens (haproxy), or that allows itself no other thread.
void start_threads_before(const rlimit& of_processes) {
  if (of_processes.rlim_cur > 1 && all_accept_queues().empty()) return;
  try {
    (void)AcceptThread::instance();
    start_threads();
  } catch (const std::exception&) {
    // The program gets its limit all the same.
  }
}

int set_limit(int resource, const rlimit& wanted) {
  if (resource == RLIMIT_NPROC) start_threads_before(wanted);
  RaisedLimits* const limits = raised_limits(resource);
  rlimit known{};
  if (!limits || wanted.rlim_cur == RLIM_INFINITY || next_getrlimit(resource, &known) != 0) {
    return next_setrlimit(resource, &wanted);
  }
  mallopt(M_ARENA_MAX, 1);
  const rlim_t room = memory_of_process(resource) + room_for_streams;
  const rlimit with_room{raise_limit(wanted.rlim_cur, room, known.rlim_max),
                         raise_limit(wanted.rlim_max, room, known.rlim_max)};
  const int done = next_setrlimit(resource, &with_room);
  if (done != 0) return done;
  limits->soft.wanted = wanted.rlim_cur;
  limits->soft.set = with_room.rlim_cur;
  limits->hard.wanted = wanted.rlim_max;
  limits->hard.set = with_room.rlim_max;
  return 0;
}

// The program finds the limits that it has set.
int get_limit(int resource, rlimit* found) {
  const int done = next_getrlimit(resource, found);
  const RaisedLimits* const limits = raised_limits(resource);
  if (done != 0 || !limits) return done;
  if (found->rlim_cur == limits->soft.set) found->rlim_cur = limits->soft.wanted;
  if (found->rlim_max == limits->hard.set) found->rlim_max = limits->hard.wanted;
  return done;
}

// A process that was started with such a limit. This runs in every process with the library, also
// where the C library comes before it and there is no next function.
[[gnu::constructor]] void look_at_limits() {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit known{};
    if (::prlimit(0, resource, nullptr, &known) == 0 && known.rlim_cur != RLIM_INFINITY) {
      mallopt(M_ARENA_MAX, 1);
    }
  }
}

static_assert(sizeof(rlimit) == sizeof(rlimit64), "one function serves both");

}  // namespace

WEFT_INTERPOSED int setrlimit(__rlimit_resource_t resource, const rlimit* limits) noexcept {
  return set_limit(resource, *limits);
}
WEFT_INTERPOSED int setrlimit64(__rlimit_resource_t resource, const rlimit64* limits) noexcept {
  return setrlimit(resource, reinterpret_cast<const rlimit*>(limits));
}
WEFT_INTERPOSED int getrlimit(__rlimit_resource_t resource, rlimit* limits) noexcept {
  return get_limit(resource, limits);
}
WEFT_INTERPOSED int getrlimit64(__rlimit_resource_t resource, rlimit64* limits) noexcept {
  return getrlimit(resource, reinterpret_cast<rlimit*>(limits));
}
