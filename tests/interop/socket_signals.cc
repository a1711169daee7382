// Signal handlers that come while the program is busy with its sockets: they end the process, leave
// the call that they have interrupted, and make such calls themselves, as signal-safety(7) allows.
// The kernel's sockets and streams under `weft run --sockets` must print the same.
//
// socket_signals exit MICROSECONDS; socket_signals jump|send|close|interrupt
#include <setjmp.h>
#include <sys/time.h>

#include <string_view>

#include "interop/socket_calls.h"

namespace {

constexpr int rounds = 300;
volatile sig_atomic_t handled = 0;

// `interval_us` as well, so that no signal is missed that comes before the call it is meant for.
void set_timer(long first_us, long interval_us) {
  const itimerval times{.it_interval = {0, interval_us}, .it_value = {0, first_us}};
  setitimer(ITIMER_REAL, &times, nullptr);
}

void handle_alarms(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(SIGALRM, &action, nullptr);
  struct sigaction found {};
  sigaction(SIGALRM, nullptr, &found);
  tell("the handler that was set",
       found.sa_handler == handler && (found.sa_flags & SA_RESTART) == flags);
}

// Bytes go round in one process, so that the work is in its own calls.
void exchange_once(const Pair& pair) {
  std::array<char, 4096> bytes{};
  (void)!send(pair.here, bytes.data(), bytes.size(), MSG_DONTWAIT);
  (void)!recv(pair.there, bytes.data(), bytes.size(), MSG_DONTWAIT);
}

void exit_in_handler(long after_us) {
  handle_alarms(
      [](int) {
        constexpr std::string_view last = "all done\n";
        (void)!write(STDOUT_FILENO, last.data(), last.size());
        _exit(0);
      },
      0);
  const Pair pair;
  set_timer(after_us, 0);
  while (true) exchange_once(pair);
}

sigjmp_buf place;

// A call that is left may hold its connection for ever. So each round has one of its own.
void jump_from_handler() {
  handle_alarms([](int) { siglongjmp(place, 1); }, 0);
  volatile int jumps = 0;
  while (jumps < rounds) {
    const Pair pair;
    if (sigsetjmp(place, 1) == 0) {
      set_timer(50 + jumps * 7, 0);
      while (true) exchange_once(pair);
    }
    jumps = jumps + 1;
  }
  tell("jumps", jumps);
}

const Pair* used = nullptr;
volatile long sent = 0;

void send_in_handler() {
  const Pair pair;
  used = &pair;
  handle_alarms(
      [](int) {
        const int kept = errno;
        const ssize_t done = send(used->here, "x", 1, MSG_DONTWAIT);
        if (done > 0) sent = sent + done;
        handled = handled + 1;
        errno = kept;
      },
      SA_RESTART);
  set_timer(100, 300);
  std::array<char, 4096> bytes{};
  long received = 0;
  while (handled < rounds) {
    const ssize_t done = send(pair.here, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (done > 0) {
      // The handler may come between the two halves of an addition.
      sigset_t alarms;
      sigemptyset(&alarms);
      sigaddset(&alarms, SIGALRM);
      sigprocmask(SIG_BLOCK, &alarms, nullptr);
      sent = sent + done;
      sigprocmask(SIG_UNBLOCK, &alarms, nullptr);
    }
    const ssize_t got = recv(pair.there, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) received += got;
  }
  set_timer(0, 0);
  while (received < sent) {
    const ssize_t got = recv(pair.there, bytes.data(), bytes.size(), 0);
    need(got > 0, "recv");
    received += got;
  }
  tell("all that was sent has arrived", received == sent);
}

volatile sig_atomic_t to_close = -1;

void close_in_handler() {
  handle_alarms(
      [](int) {
        const int kept = errno;
        if (to_close >= 0) close(to_close);
        to_close = -1;
        errno = kept;
      },
      SA_RESTART);
  const Pair pair;
  int ends = 0;
  for (int i = 0; i < rounds; ++i) {
    Pair closed;
    to_close = closed.here;
    closed.here = -1;
    set_timer(50 + i, 0);
    while (to_close >= 0) exchange_once(pair);
    ends += receive_text(closed.there).empty();
  }
  tell("ends", ends);
}

void interrupt() {
  handle_alarms([](int) { handled = handled + 1; }, 0);
  const Pair pair;
  int interrupted = 0;
  for (int i = 0; i < rounds; ++i) {
    set_timer(1 + i % 100, 10'000);
    interrupted += receive_text(pair.here) == "EINTR";
    set_timer(1 + i % 100, 10'000);
    pollfd entry{pair.here, POLLIN, 0};
    interrupted += poll(&entry, 1, -1) < 0 && errno == EINTR;
  }
  set_timer(0, 0);
  tell("interrupted", interrupted);
}

}  // namespace

int main(int count, char** arguments) {
  signal(SIGPIPE, SIG_IGN);
  const std::string_view what = count > 1 ? arguments[1] : "";
  if (what == "exit" && count > 2) exit_in_handler(std::atol(arguments[2]));
  if (what == "jump") jump_from_handler();
  if (what == "send") send_in_handler();
  if (what == "close") close_in_handler();
  if (what == "interrupt") interrupt();
  std::puts("all done");
}
