// Children of fork(2) with rsockets of their parent: they get errors, and rsockets of their own
// work. A program that does not use Weft's own interfaces. Exits at the first unexpected result and
// prints it.
#include <sys/wait.h>

#include <cstdio>

#include "interop/rsocket_pair.h"

namespace {

constexpr unsigned child_seconds = 50;  // SIGALRM ends a child that hangs

template <typename Body>
void in_a_child(const Body& body) {
  std::fflush(stdout);
  const pid_t child = fork();
  NEED(child >= 0);
  if (child == 0) {
    alarm(child_seconds);
    body();
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  NEED(waitpid(child, &status, 0) == child);
  NEED(status == 0);
}

// The number of the descriptor behind an inherited listener may be that of a file of the child.
void listeners_are_the_parents() {
  sockaddr_in address{};
  const int listener = listening(address);
  in_a_child([&] {
    for (int made = 0; made < 50; ++made) {
      int ends[2];
      NEED(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    }
    NEED((poll_one(listener, POLLIN) & POLLERR) != 0);
    NEED_ERROR(raccept(listener, nullptr, nullptr), ENODEV);
    NEED(rclose(listener) == 0);
  });
  Blocked<int> accepting([&] { return raccept(listener, nullptr, nullptr); });
  const int client = rsocket(AF_INET, SOCK_STREAM, 0);
  NEED(rconnect(client, raw(address), sizeof address) == 0);
  for (const int each : {client, accepting.result(), listener}) NEED(rclose(each) == 0);
}

void closing_one_leaves_others_alone() {
  const sockaddr_in any = loopback();
  const int datagrams = rsocket(AF_INET, SOCK_DGRAM, 0);
  NEED(rbind(datagrams, raw(any), sizeof any) == 0);
  in_a_child([&] {
    sockaddr_in address{};
    const int listener = listening(address);
    const int active = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    NEED_ERROR(rconnect(active, raw(address), sizeof address), EINPROGRESS);
    NEED(rclose(datagrams) == 0);
    const int passive = raccept(listener, nullptr, nullptr);
    NEED(passive >= 0);
    NEED(poll_one(active, POLLOUT) == POLLOUT);
  });
  NEED(rclose(datagrams) == 0);
}

// A thread may hold any lock of an rsocket while another one forks.
void other_threads_use_them() {
  Pair pair;
  const sockaddr_in any = loopback();
  const int datagrams = rsocket(AF_INET, SOCK_DGRAM, 0);
  NEED(rbind(datagrams, raw(any), sizeof any) == 0);
  std::atomic<bool> ends{false};
  std::thread user([&] {
    char byte = 0;
    while (!ends) {
      NEED_ERROR(rrecv(pair.active, &byte, 1, MSG_DONTWAIT), EAGAIN);
      NEED_ERROR(rrecv(datagrams, &byte, 1, MSG_DONTWAIT), EAGAIN);
      poll_one(pair.active, POLLIN, 0);
    }
  });
  for (int turn = 0; turn < 200; ++turn) {
    in_a_child([&] {
      NEED(rclose(rsocket(AF_INET, SOCK_STREAM, 0)) == 0);
      NEED(option(pair.active, SOL_SOCKET, SO_RCVBUF) > 0);
      poll_one(datagrams, POLLIN, 0);
    });
  }
  ends = true;
  user.join();
  NEED(rclose(datagrams) == 0);
}

}  // namespace

int main() {
  listeners_are_the_parents();
  closing_one_leaves_others_alone();
  other_threads_use_them();
  std::printf("all children have ended\n");
}
