// Receiving all bytes that were asked for, up to a timeout or a signal.
#include "interop/socket_calls.h"

namespace {

void limit_receiving(int fd, int milliseconds) {
  const timeval limit{.tv_sec = 0, .tv_usec = milliseconds * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

std::string receive_all(int fd, std::size_t bytes, int flags) {
  std::array<char, 16> text{};
  const ssize_t got = recv(fd, text.data(), bytes, MSG_WAITALL | flags);
  return got < 0 ? error_or(got) : std::string(text.data(), static_cast<std::size_t>(got));
}

// The time limits the whole call, and not each arrival: each byte comes within it, but not all.
void all_within_a_time() {
  const Pair pair;
  limit_receiving(pair.there, 400);
  std::thread slow([&] {
    for (int i = 0; i < 10; ++i) {
      say(pair.here, "1");
      poll(nullptr, 0, 100);
    }
  });
  const std::size_t got = receive_all(pair.there, 10, 0).size();
  tell("some of all in time", got >= 1 && got < 10);
  slow.join();
}

void some_of_all() {
  const Pair pair;
  limit_receiving(pair.there, 30);
  say(pair.here, "abc");
  await(pair.there, POLLIN);
  tell("a look at all in time", receive_all(pair.there, 6, MSG_PEEK));
  tell("all in time", receive_all(pair.there, 6, 0));
  tell("a look at nothing in time", receive_all(pair.there, 6, MSG_PEEK));
  tell("nothing in time", receive_all(pair.there, 6, 0));
}

// The timer repeats, so that a signal before the call does not leave it waiting.
void some_of_all_until_a_signal() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  for (const int flags : {0, static_cast<int>(MSG_PEEK)}) {
    const Pair pair;
    say(pair.here, "abc");
    await(pair.there, POLLIN);
    constexpr timeval often{.tv_sec = 0, .tv_usec = 50'000};
    const itimerval timer{.it_interval = often, .it_value = often};
    setitimer(ITIMER_REAL, &timer, nullptr);
    tell(flags ? "a look at all until a signal" : "all until a signal",
         receive_all(pair.there, 6, flags));
    const itimerval none{};
    setitimer(ITIMER_REAL, &none, nullptr);
  }
  signal(SIGALRM, SIG_DFL);
}

void all_that_comes() {
  const Pair pair;
  say(pair.here, "abc");
  std::thread slow([&] { say(pair.here, "def"); });
  tell("a look at all", receive_all(pair.there, 6, MSG_PEEK));
  slow.join();
  shutdown(pair.here, SHUT_WR);
  tell("a look at all before the end", receive_all(pair.there, 9, MSG_PEEK));
  tell("all before the end", receive_all(pair.there, 9, 0));
  tell("a look at the end", receive_all(pair.there, 9, MSG_PEEK));
}

}  // namespace

void receive_up_to_limits() {
  all_within_a_time();
  some_of_all();
  some_of_all_until_a_signal();
  all_that_comes();
}
