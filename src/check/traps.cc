#include "check/traps.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/system_call.h"
#include "base/trap_action.h"
#include "check/pace.h"

namespace weft::check {
namespace {

// A signal handler reads it, so it must not be allocated at the first use.
[[gnu::tls_model("initial-exec")]] thread_local volatile int depth = 0;

constexpr std::size_t most_watchpoints = 8;
constexpr std::uint64_t magic_mask = std::uint64_t{0xFFFFFFFF} << 32;

std::array<std::atomic<Watchpoint*>, most_watchpoints> watchpoints{};
std::atomic<std::size_t> watchpoint_count{0};
std::atomic<int> armed_count{0};

// In the tags of all traps of this library. A process may have the device twice, as a drop-in
// library and within a program, each with a handler of its own.
std::uint64_t magic() {
  constexpr std::uint64_t weft = 0x5765;
  const auto library = reinterpret_cast<std::uintptr_t>(&watchpoints) >> 6 & 0xFFFF;
  return (weft << 16 | library) << 32;
}

TrapAction program_action{nullptr};

// From the kernel's <asm-generic/siginfo.h>, which the C library's header does not have.
constexpr int code_of_perf = 6;
constexpr std::uint32_t flag_asynchronous = 1;
struct PerfPart {
  std::uint64_t data = 0;
  std::uint32_t type = 0;
  std::uint32_t flags = 0;
};

PerfPart perf_part_of(const siginfo_t& info) {
  PerfPart part;
  constexpr std::size_t offset = 24;  // behind si_addr
  std::memcpy(&part, reinterpret_cast<const std::byte*>(&info) + offset, sizeof part);
  return part;
}

std::uintptr_t instruction_of(const void* context) {
#if defined(__x86_64__) && defined(__LP64__)
  return static_cast<std::uintptr_t>(
      static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#else
  (void)context;
  return 0;
#endif
}

void restore_default() {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  if (const auto keep = reinterpret_cast<KeepTrapAction>(dlsym(RTLD_DEFAULT, keep_trap_action))) {
    keep(nullptr);
  }
  ::sigaction(SIGTRAP, &standard, nullptr);
}

// Does what would have happened without our handler.
void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction* const found = program_action.load();
  if ((found->sa_flags & SA_RESETHAND) != 0) {
    static const struct sigaction standard {};
    program_action = &standard;
  }
  if ((found->sa_flags & SA_SIGINFO) != 0) return found->sa_sigaction(signal, info, context);
  if (found->sa_handler == SIG_IGN) return;
  if (found->sa_handler != SIG_DFL) return found->sa_handler(signal);
  restore_default();
  ::raise(signal);
}

}  // namespace

void InsideDevice::enter() {
  depth = depth + 1;
}

void InsideDevice::leave() {
  depth = depth - 1;
}

// A trap that comes later than its access, because the thread blocked SIGTRAP, says nothing: the
// stack is another one by then.
struct TrapHandler {
  static void handle(int signal, siginfo_t* info, void* context) {
    const PerfPart part = info->si_code == code_of_perf ? perf_part_of(*info) : PerfPart{};
    if ((part.data & magic_mask) != magic()) return pass_on(signal, info, context);
    const std::size_t index = part.data % most_watchpoints;
    Watchpoint* const watchpoint = watchpoints[index].load();
    if (!watchpoint || depth != 0 || (part.flags & flag_asynchronous) != 0) return;
    const int saved = errno;
    // Sequentially consistent, as disarm() is: it waits for a handler that finds the tag.
    watchpoint->handlers_.fetch_add(1);
    if (watchpoint->tag_.load() == part.data) {
      Trap trap;
      trap.instruction = instruction_of(context);
      watchpoint->taker_.take(trap);
    }
    watchpoint->handlers_.fetch_sub(1);
    errno = saved;
  }

  // Our handler calls the one that was found, so it keeps that one's mask and flags.
  static void install() {
    struct sigaction found {};
    if (::sigaction(SIGTRAP, nullptr, &found) != 0) return;
    program_action = new struct sigaction(found);
    struct sigaction ours = found;
    const bool handled = (found.sa_flags & SA_SIGINFO) != 0 ||
                         (found.sa_handler != SIG_DFL && found.sa_handler != SIG_IGN);
    constexpr int kept = SA_ONSTACK | SA_RESTART;
    ours.sa_flags = SA_SIGINFO | (handled ? found.sa_flags & kept : SA_ONSTACK | SA_RESTART);
    if (!handled) sigemptyset(&ours.sa_mask);
    ours.sa_sigaction = handle;
    ::sigaction(SIGTRAP, &ours, nullptr);
    const auto keep = reinterpret_cast<KeepTrapAction>(dlsym(RTLD_DEFAULT, keep_trap_action));
    if (keep) keep(&program_action);
  }

  // Asks the kernel, because sigaction(2) may be replaced.
  static bool is_ours() {
    struct {
      void (*handler)(int, siginfo_t*, void*) = nullptr;
      unsigned long flags = 0;
      void (*restorer)() = nullptr;
      std::uint64_t mask = 0;
    } now;
    return system_call(SYS_rt_sigaction, SIGTRAP, nullptr, &now, sizeof now.mask) == 0 &&
           now.handler == handle;
  }
};

// --- The stack -----------------------------------------------------------------------------------

namespace {

struct Walk {
  Trap* trap;
  bool reached = false;  // the frame that was interrupted; those before it are of the handler
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  Trap& trap = *walk.trap;
  const std::uintptr_t at = _Unwind_GetIP(context);
  walk.reached = walk.reached || at == trap.instruction;
  if (!walk.reached) return _URC_NO_REASON;
  if (trap.count == Trap::most_frames) return _URC_END_OF_STACK;
  trap.frames[trap.count++] = at;
  return _URC_NO_REASON;
}

}  // namespace

// The unwinder finds its tables without a lock (_dl_find_object of glibc 2.35), and has run before
// in this process: each post takes its stack.
void Trap::take_stack() {
  count = 0;
  Walk walk{this};
  _Unwind_Backtrace(add_frame, &walk);
  if (count == 0) frames[count++] = instruction;
}

// --- Watchpoints ---------------------------------------------------------------------------------

namespace {

std::string read_file(const std::string& path) {
  std::string text;
  const auto file = static_cast<int>(
      system_call(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY, 0));
  if (file < 0) return text;
  text.resize(4096);  // bytes; the lines that are looked for come within them
  const auto got = system_call(SYS_read, file, text.data(), text.size());
  system_call(SYS_close, file);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

// A value of /proc/.../status: proc(5).
std::string_view field_of(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) return {};
  status.remove_prefix(at + name.size());
  return status.substr(0, status.find('\n'));
}

bool blocks_traps(const std::string& thread) {
  const std::string status = read_file("/proc/self/task/" + thread + "/status");
  const std::string blocked(field_of(status, "\nSigBlk:\t"));
  return blocked.empty() || (std::strtoull(blocked.c_str(), nullptr, 16) >> (SIGTRAP - 1) & 1) != 0;
}

bool is_traced() {
  const std::string status = read_file("/proc/self/status");
  return field_of(status, "\nTracerPid:\t") != "0";
}

std::vector<int> threads_to_watch(std::size_t most) {
  std::vector<int> threads;
  DIR* const directory = opendir("/proc/self/task");
  if (!directory) return threads;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] == '.' || blocks_traps(entry->d_name)) continue;
    threads.push_back(std::atoi(entry->d_name));
    if (threads.size() == most) break;
  }
  closedir(directory);
  return threads;
}

}  // namespace

// A thread may have ended since it was listed.
int Watchpoint::Files::open(std::span<const int> threads, const WatchedBytes& watched,
                            std::uint64_t tag) {
  for (const int thread : threads) {
    const int file = open_debug_register(watched, thread, tag);
    if (file < 0 && errno == ESRCH) continue;
    if (file < 0) {
      const int failed = errno;
      close();
      return failed;
    }
    files[count].store(file);
    count.fetch_add(1);
  }
  return count == 0 ? ESRCH : 0;
}

void Watchpoint::Files::close() {
  for (std::size_t i = 0; i < count; ++i) close_debug_register(files[i]);
  count = 0;
}

Watchpoint::Watchpoint(Taker& taker) : taker_(taker), index_(watchpoint_count.fetch_add(1)) {
  if (index_ < most_watchpoints) watchpoints[index_] = this;
}

int Watchpoint::arm(std::uint64_t first, std::uint32_t bytes, bool counts_writes) {
  disarm();
  if (index_ >= most_watchpoints) return ENOSPC;
  const std::vector<int> threads = threads_to_watch(most_threads);
  const WatchedBytes watched{.first = first, .bytes = bytes};
  ++generation_;
  const std::uint64_t tag = magic() | ((generation_ * most_watchpoints + index_) & ~magic_mask);
  if (counts_writes) {
    WatchedBytes written = watched;
    written.writes_only = true;
    if (const int failed = counts_.open(threads, written, 0)) return failed;
  }
  tag_ = tag;
  armed_ = true;
  ++armed_count;
  const int failed = traps_.open(threads, watched, tag);
  if (failed != 0) disarm();
  return failed;
}

// The wait has a limit, because a thread may be cancelled in the handler.
void Watchpoint::disarm() {
  if (!armed_) return;
  constexpr std::uint64_t longest_ns = 1'000'000'000;
  tag_ = 0;
  const std::uint64_t began_ns = now_ns();
  while (handlers_.load() > 0 && now_ns() - began_ns < longest_ns) sched_yield();
  if (handlers_.load() > 0) handlers_ = 0;
  traps_.close();
  counts_.close();
  armed_ = false;
  --armed_count;
}

void Watchpoint::stop() {
  for (std::size_t i = 0; i < traps_.count; ++i) disable_debug_register(traps_.files[i]);
}

void Watchpoint::enable() {
  for (std::size_t i = 0; i < traps_.count; ++i) enable_debug_register(traps_.files[i]);
}

std::uint64_t Watchpoint::writes() const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < counts_.count; ++i) sum += accesses_of(counts_.files[i]);
  return sum;
}

void Watchpoint::abandon_after_fork() {
  if (armed_) --armed_count;
  tag_ = 0;
  handlers_ = 0;
  traps_.close();
  counts_.close();
  armed_ = false;
}

namespace {

// For good.
bool give_up(const std::string& why) {
  log(LogLevel::warning, "check",
      fmt::format("the checks early-access and polled-write see nothing from here on: {}", why));
  return false;
}

}  // namespace

bool may_watch() {
  static std::mutex mutex;
  static bool asked = false;
  static bool usable = false;
  const std::lock_guard lock(mutex);
  if (!asked) {
    asked = true;
    const std::string why = why_no_debug_registers();
    usable = why.empty() || give_up("they need the debug registers of the processor, and " + why);
    if (usable) TrapHandler::install();
  }
  if (usable && !TrapHandler::is_ours()) {
    usable = give_up("the program has replaced their handler for SIGTRAP");
  }
  return usable && !is_traced();
}

bool must_release() {
  return armed_count != 0 && !TrapHandler::is_ours();
}

bool copy_unseen(void* to, std::uint64_t from, std::size_t bytes) {
  const iovec local{to, bytes};
  const iovec remote{reinterpret_cast<void*>(from), bytes};
  const auto got = system_call(SYS_process_vm_readv, getpid(), &local, 1UL, &remote, 1UL, 0UL);
  return got == static_cast<long>(bytes);
}

}  // namespace weft::check
