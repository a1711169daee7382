// Which handlers the program has, and when they run; the replacements of sigaction(2) and its
// relatives.
#include "interpose/program_signals.h"

#include <poll.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "base/quick_mutex.h"
#include "base/system_call.h"
#include "interpose/export.h"
#include "interpose/next.h"

namespace weft::interpose {

constinit thread_local detail::ThreadSignals detail::thread_signals;

namespace {

// As the kernel has it: one bit for each signal.
using Mask = std::uint64_t;
constexpr int most_signals = 64;

constexpr Mask bit_of(int signal) {
  return Mask{1} << (signal - 1);
}
// An instruction of the thread raises them, so that they cannot wait for its end.
constexpr Mask of_faults = bit_of(SIGSEGV) | bit_of(SIGBUS) | bit_of(SIGILL) | bit_of(SIGFPE) |
                           bit_of(SIGTRAP) | bit_of(SIGSYS) | bit_of(SIGABRT);

// Larger types of the C library begin with the bits that the kernel knows.
Mask mask_of(const sigset_t& set) {
  Mask mask = 0;
  std::memcpy(&mask, &set, sizeof mask);
  return mask;
}
void set_mask(sigset_t& set, Mask mask) {
  std::memcpy(&set, &mask, sizeof mask);
}
void change_thread_mask(Mask mask) {
  (void)system_call(SYS_rt_sigprocmask, SIG_SETMASK, &mask, nullptr, sizeof mask);
}

using Handler = void (*)(int);
using DetailedHandler = void (*)(int, siginfo_t*, void*);

// What the program has set for a signal. Other threads read it while it is changed.
class Action {
 public:
  struct Values {
    Handler handler = nullptr;
    int flags = 0;
    Mask mask = 0;
  };

  // Callers exclude each other.
  void set(const Values& values) {
    const unsigned version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    handler_.store(values.handler, std::memory_order_release);
    flags_.store(values.flags, std::memory_order_release);
    mask_.store(values.mask, std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }
  [[nodiscard]] Values get() const {
    while (true) {
      const unsigned version = version_.load(std::memory_order_acquire);
      const Values values{handler_.load(std::memory_order_acquire),
                          flags_.load(std::memory_order_acquire),
                          mask_.load(std::memory_order_acquire)};
      if (version % 2 == 0 && version == version_.load(std::memory_order_relaxed)) return values;
    }
  }

 private:
  std::atomic<unsigned> version_{0};  // odd while it is changed
  std::atomic<Handler> handler_{nullptr};
  std::atomic<int> flags_{0};
  std::atomic<Mask> mask_{0};
};

constinit std::array<Action, most_signals + 1> actions;
constinit QuickMutex change_mutex;

constinit next::Function<int(int, const struct sigaction*, struct sigaction*)> next_sigaction{
    "sigaction"};

// False where a sandbox allows none of these calls.
bool give_back(int signal, siginfo_t& details) {
  const long process = system_call(SYS_getpid);
  const long thread = system_call(SYS_gettid);
  return system_call(SYS_rt_tgsigqueueinfo, process, thread, signal, &details) == 0 ||
         system_call(SYS_tgkill, process, thread, signal) == 0;
}

// The handler of this library runs with all signals blocked. The kernel gives the mask of `context`
// to the thread behind it.
bool hold(int signal, siginfo_t& details, ucontext_t& context) {
  auto& mine = detail::thread_signals;
  if (!give_back(signal, details)) return false;
  if (!mine.held.load(std::memory_order_relaxed)) {
    mine.mask_before.store(mask_of(context.uc_sigmask), std::memory_order_relaxed);
    mine.held.store(true, std::memory_order_relaxed);
  }
  set_mask(context.uc_sigmask, ~of_faults);
  return true;
}

void reset(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  next_sigaction(signal, &action, nullptr);
}

void run(int signal, siginfo_t* details, ucontext_t* context) {
  const Action::Values action = actions[static_cast<std::size_t>(signal)].get();
  if (!action.handler) return;
  if ((action.flags & SA_RESETHAND) != 0) reset(signal);
  auto& mine = detail::thread_signals;
  mine.handlers.store(mine.handlers.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if ((action.flags & SA_RESTART) == 0) {
    mine.without_restart.store(mine.without_restart.load(std::memory_order_relaxed) + 1,
                               std::memory_order_relaxed);
  }
  const Mask own = (action.flags & SA_NODEFER) != 0 ? 0 : bit_of(signal);
  change_thread_mask(mask_of(context->uc_sigmask) | action.mask | own);
  if ((action.flags & SA_SIGINFO) != 0) {
    auto* const function = reinterpret_cast<void*>(action.handler);
    reinterpret_cast<DetailedHandler>(function)(signal, details, context);
  } else {
    action.handler(signal);
  }
}

// The kernel calls this one in place of each handler of the program.
void on_signal(int signal, siginfo_t* details, void* context) {
  const int kept = errno;
  auto* const interrupted = static_cast<ucontext_t*>(context);
  if (detail::thread_signals.depth.load(std::memory_order_relaxed) == 0 ||
      !hold(signal, *details, *interrupted)) {
    errno = kept;
    return run(signal, details, interrupted);
  }
  errno = kept;
}

bool is_handler(Handler handler) {
  return handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR;
}

// A child of vfork(2) has handlers of its own, but shares the memory in which those of its parent
// are kept: see owns_table().
const pid_t process_at_start = getpid();
std::atomic<pid_t> process{0};

bool shares_memory() {
  const pid_t known = process.load(std::memory_order_relaxed);
  return static_cast<pid_t>(system_call(SYS_getpid)) != (known != 0 ? known : process_at_start);
}

// The action that the kernel gets in place of the program's.
struct sigaction for_kernel(const struct sigaction& wanted) {
  struct sigaction made = wanted;
  made.sa_sigaction = on_signal;
  made.sa_flags = (wanted.sa_flags & ~(SA_RESETHAND | SA_NODEFER)) | SA_SIGINFO;
  set_mask(made.sa_mask, ~of_faults);
  return made;
}

// The action that the program sees in place of the kernel's.
struct sigaction for_program(int signal, const struct sigaction& found) {
  if ((found.sa_flags & SA_SIGINFO) == 0 || found.sa_sigaction != on_signal) return found;
  const Action::Values values = actions[static_cast<std::size_t>(signal)].get();
  struct sigaction told = found;
  told.sa_handler = values.handler;
  constexpr int changed = static_cast<int>(SA_RESETHAND | SA_NODEFER) | SA_SIGINFO;
  told.sa_flags = (found.sa_flags & ~changed) | (values.flags & changed);
  sigemptyset(&told.sa_mask);
  set_mask(told.sa_mask, values.mask);
  return told;
}

// No handler runs in this thread while an action is changed: it would wait for the change.
class ChangeLock {
 public:
  ChangeLock() {
    constexpr Mask all = ~of_faults;
    (void)system_call(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before_, sizeof all);
    change_mutex.lock();
  }
  ~ChangeLock() {
    change_mutex.unlock();
    change_thread_mask(before_);
  }
  ChangeLock(const ChangeLock&) = delete;
  ChangeLock& operator=(const ChangeLock&) = delete;

 private:
  Mask before_ = 0;
};

// The signals of real time 32 and 33 are the C library's own.
bool is_held_back(int signal) {
  return signal > 0 && signal <= most_signals && (bit_of(signal) & of_faults) == 0;
}

// The program's handler is stored before the kernel can call on_signal() for it.
int change(int signal, const struct sigaction& wanted, struct sigaction* before) {
  const ChangeLock lock;
  struct sigaction found {};
  if (next_sigaction(signal, nullptr, &found) != 0) return -1;
  const struct sigaction told = for_program(signal, found);
  Action& action = actions[static_cast<std::size_t>(signal)];
  const Action::Values kept = action.get();
  int done = 0;
  if (is_handler(wanted.sa_handler) && !shares_memory()) {
    action.set({wanted.sa_handler, wanted.sa_flags, mask_of(wanted.sa_mask)});
    const struct sigaction made = for_kernel(wanted);
    done = next_sigaction(signal, &made, nullptr);
    if (done != 0) action.set(kept);
  } else {
    done = next_sigaction(signal, &wanted, nullptr);
  }
  if (done == 0 && before) *before = told;
  return done;
}

int look(int signal, struct sigaction* found) {
  struct sigaction kernels {};
  if (next_sigaction(signal, nullptr, &kernels) != 0) return -1;
  if (found) *found = for_program(signal, kernels);
  return 0;
}

// As sigaction(2). The replacements below call this one and not each other: the program may have a
// function of the same name itself, as Erlang has, which calls them.
int exchange(int signal, const struct sigaction* wanted, struct sigaction* before) {
  if (!is_held_back(signal)) return next_sigaction(signal, wanted, before);
  return wanted ? change(signal, *wanted, before) : look(signal, before);
}

// siginterrupt(3): signals whose handlers signal(3) installs without SA_RESTART.
constinit std::atomic<Mask> interrupting{0};

Handler install(int signal, Handler handler, int flags) {
  struct sigaction wanted {};
  wanted.sa_handler = handler;
  wanted.sa_flags = flags;
  struct sigaction before {};
  if (handler == SIG_ERR || signal <= 0 || signal > most_signals) {
    errno = EINVAL;
    return SIG_ERR;
  }
  if ((flags & SA_NODEFER) == 0) set_mask(wanted.sa_mask, bit_of(signal));
  return exchange(signal, &wanted, &before) == 0 ? before.sa_handler : SIG_ERR;
}

constexpr int flags_of_system_v = static_cast<int>(SA_RESETHAND | SA_NODEFER);

Handler install_as_bsd(int number, Handler handler) {
  const bool interrupts =
      number > 0 && number <= most_signals && (interrupting.load() & bit_of(number)) != 0;
  return install(number, handler, interrupts ? 0 : SA_RESTART);
}

}  // namespace

// The kernel delivers in the call what it has kept.
void detail::release_signals() {
  const int kept = errno;
  auto& mine = thread_signals;
  mine.held.store(false, std::memory_order_relaxed);
  change_thread_mask(mine.mask_before.load(std::memory_order_relaxed));
  errno = kept;
}

Waiting::Waiting() : Waiting(nullptr) {}

Waiting::Waiting(const sigset_t* mask)
    : depth_(detail::thread_signals.depth.load(std::memory_order_relaxed)) {
  auto& mine = detail::thread_signals;
  const unsigned handlers = mine.handlers.load(std::memory_order_relaxed);
  const unsigned without_restart = mine.without_restart.load(std::memory_order_relaxed);
  mine.depth.store(0, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (!mine.held.load(std::memory_order_relaxed)) return;
  detail::release_signals();
  if (mask) {
    constexpr timespec at_once{};
    (void)next::ppoll(nullptr, 0, &at_once, mask);
  }
  ended_polling_ = mine.handlers.load(std::memory_order_relaxed) != handlers;
  ended_receiving_ = mine.without_restart.load(std::memory_order_relaxed) != without_restart;
}

// A signal may come in between: then the mask of the thread is not the program's any more.
sigset_t program_mask() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  const auto& mine = detail::thread_signals;
  if (mine.held.load(std::memory_order_relaxed)) {
    set_mask(mask, mine.mask_before.load(std::memory_order_relaxed));
  }
  return mask;
}

void hold_signals_before_fork() {
  detail::add_calls(1);
}

void release_signals_in_parent() {
  detail::add_calls(-1);
  const InCall ends;  // as the outermost call does
}

// Signals that are pending are the parent's alone.
void release_signals_in_child() {
  process.store(static_cast<pid_t>(system_call(SYS_getpid)), std::memory_order_relaxed);
  std::construct_at(&change_mutex);  // another thread may have held it
  release_signals_in_parent();
}

}  // namespace weft::interpose

using namespace weft::interpose;

WEFT_INTERPOSED int sigaction(int signal, const struct sigaction* wanted,
                              struct sigaction* before) noexcept {
  return exchange(signal, wanted, before);
}
WEFT_INTERPOSED int __sigaction(int signal, const struct sigaction* wanted,
                                struct sigaction* before) noexcept {
  return exchange(signal, wanted, before);
}

// The handlers of BSD, as the C library has them by default.
WEFT_INTERPOSED Handler signal(int number, Handler handler) noexcept {
  return install_as_bsd(number, handler);
}
WEFT_INTERPOSED Handler bsd_signal(int number, Handler handler) noexcept {
  return install_as_bsd(number, handler);
}
WEFT_INTERPOSED Handler ssignal(int number, Handler handler) noexcept {
  return install_as_bsd(number, handler);
}
WEFT_INTERPOSED Handler sysv_signal(int number, Handler handler) noexcept {
  return install(number, handler, flags_of_system_v);
}
WEFT_INTERPOSED Handler __sysv_signal(int number, Handler handler) noexcept {
  return install(number, handler, flags_of_system_v);
}

WEFT_INTERPOSED int siginterrupt(int number, int interrupts) noexcept {
  struct sigaction action {};
  if (exchange(number, nullptr, &action) != 0) return -1;
  if (interrupts) {
    interrupting |= bit_of(number);
    action.sa_flags &= ~SA_RESTART;
  } else {
    interrupting &= ~bit_of(number);
    action.sa_flags |= SA_RESTART;
  }
  return exchange(number, &action, nullptr);
}
