// Duplicated descriptors, signals, other processes and stdio.
#include "interop/socket_calls.h"

namespace {

void copies() {
  Pair pair;
  const int copy = dup(pair.here);
  close(pair.here);
  say(copy, "by a copy");
  tell("dup", receive_text(pair.there));
  tell("not ended", receive_text(pair.there, MSG_DONTWAIT));
  pair.here = fcntl(copy, F_DUPFD_CLOEXEC, 100);
  close(copy);
  say(pair.here, "y");
  tell("F_DUPFD", receive_text(pair.there));
  const int other = open("/dev/null", O_RDONLY);
  dup2(other, pair.here);  // closes the last descriptor
  tell("ended by dup2", receive_text(pair.there));
  close(other);
}

void resets() {
  Pair pair;
  const linger at_once{1, 0};
  setsockopt(pair.here, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(pair.here);
  pair.here = -1;
  // Not POLLERR: while the peer has a copy of the bell, a loss is shown as a hang-up.
  const unsigned shown = await(pair.there, POLLIN | POLLRDHUP);
  tell("reset", names_of(shown & (POLLIN | POLLHUP | POLLRDHUP)));
  tell("reset says", receive_text(pair.there));
  tell("reset says once", receive_text(pair.there));
  tell("sending to nobody", error_or(send(pair.there, "x", 1, MSG_NOSIGNAL)));
}

void signals() {
  const Pair pair;
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 10'000}, {0, 10'000}};
  setitimer(ITIMER_REAL, &often, nullptr);
  tell("interrupted", receive_text(pair.there));
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  std::thread later([&] {
    poll(nullptr, 0, 50);
    say(pair.here, "late");
  });
  tell("restarted", receive_text(pair.there));
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  later.join();
}

void echo(int fd) {
  std::array<char, 64> text{};
  const ssize_t got = recv(fd, text.data(), text.size(), 0);
  if (got > 0) send(fd, text.data(), static_cast<std::size_t>(got), 0);
}

// The classic server: a process for each connection.
void forks() {
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  for (const char* word : {"first", "second"}) {
    const int here = connect_to(address);
    const int there = accept(listener, nullptr, nullptr);
    const pid_t child = fork();
    if (child == 0) {
      close(listener);
      close(here);
      echo(there);
      _exit(0);
    }
    close(there);
    say(here, word);
    tell("by a child", receive_text(here));
    tell("its end", receive_text(here));
    close(here);
    waitpid(child, nullptr, 0);
  }
  close(listener);
  const Pair pair(SOCK_NONBLOCK);
  tell("another program", std::system("true"));
  say(pair.here, "afterwards");
  await(pair.there, POLLIN);
  tell("in the parent", receive_text(pair.there));
  // A child that does not use the connections, for example to save the server's data.
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  for (const char* word : {"as", "before"}) {
    say(pair.here, word);
    await(pair.there, POLLIN);
    say(pair.there, receive_text(pair.there).c_str());
    tell("in the parent still", receive_text(pair.here));
  }
  sockaddr_in name{};
  socklen_t bytes = sizeof name;
  getpeername(pair.there, reinterpret_cast<sockaddr*>(&name), &bytes);
  const auto port = name.sin_port;
  getsockname(pair.here, reinterpret_cast<sockaddr*>(&name), &bytes);
  tell("names as before", name.sin_family == AF_INET && name.sin_port == port);
}

// A request and its end have come before the server starts a process for it.
void forks_after_the_end() {
  const Pair pair;
  say(pair.here, "a whole request");
  shutdown(pair.here, SHUT_WR);
  std::array<char, 64> text{};
  // Both are there once this returns the request: WAITALL waits for more bytes or the end.
  recv(pair.there, text.data(), text.size(), MSG_PEEK | MSG_WAITALL);
  const pid_t child = fork();
  if (child == 0) {
    echo(pair.there);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  tell("by a child after the end", receive_text(pair.here));
}

// The server waits for the end too (POLLRDHUP), and has not received what came before it yet.
void forks_with_a_known_end() {
  const Pair pair;
  say(pair.here, "before the end");
  shutdown(pair.here, SHUT_WR);
  await(pair.there, POLLRDHUP);
  const pid_t child = fork();
  if (child == 0) std::exit(0);  // with its exit handlers
  int status = -1;
  waitpid(child, &status, 0);
  tell("status of a child that uses nothing", status);
  tell("bytes before a known end", receive_text(pair.there));
  tell("the known end", receive_text(pair.there));
}

// Another program writes to a connection.
void spawning() {
  Pair pair;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pair.there, STDOUT_FILENO);
  char name[] = "echo";
  char text[] = "spawned";
  std::array<char*, 3> arguments{name, text, nullptr};
  pid_t child = 0;
  tell("posix_spawn", posix_spawnp(&child, "echo", &actions, nullptr, arguments.data(), environ));
  posix_spawn_file_actions_destroy(&actions);
  waitpid(child, nullptr, 0);
  close(pair.there);
  pair.there = -1;
  tell("it says", receive_text(pair.here));
  tell("and ends", receive_text(pair.here));
}

// A child that receives a connection from its parent through a Unix domain socket.
void passing() {
  std::array<int, 2> local{};
  need(socketpair(AF_UNIX, SOCK_STREAM, 0, local.data()) == 0, "socketpair");
  const pid_t child = fork();
  char text[] = "x";
  iovec piece{text, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  if (child == 0) {
    int fd = -1;
    if (recvmsg(local[1], &message, 0) == 1) {
      std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    }
    echo(fd);
    _exit(0);
  }
  Pair pair;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &pair.there, sizeof(int));
  tell("passed", sendmsg(local[0], &message, 0));
  close(pair.there);
  pair.there = -1;
  say(pair.here, "passed on");
  tell("by who got it", receive_text(pair.here));
  tell("its end too", receive_text(pair.here));
  waitpid(child, nullptr, 0);
  close(local[0]);
  close(local[1]);
}

// As shells do for `echo >&3`: stdio's own output is the connection for a while.
void standard_output() {
  const Pair pair;
  const int kept = dup(STDOUT_FILENO);
  std::fflush(stdout);
  dup2(pair.there, STDOUT_FILENO);
  std::puts("printed");
  std::fflush(stdout);
  dup2(kept, STDOUT_FILENO);
  close(kept);
  tell("by puts", receive_text(pair.here));
  say(pair.here, "afterwards");
  tell("by recv", receive_text(pair.there));
}

void files() {
  Pair pair;
  std::FILE* const file = fdopen(pair.there, "r+");
  say(pair.here, "a line\n");
  std::array<char, 64> line{};
  tell("fgets", std::fgets(line.data(), line.size(), file) ? line.data() : "nothing");
  std::fputs("an answer\n", file);
  std::fclose(file);
  pair.there = -1;
  tell("fputs", receive_text(pair.here));
  tell("fclose", receive_text(pair.here));
}

}  // namespace

void share_sockets() {
  copies();
  resets();
  signals();
  forks();
  forks_after_the_end();
  forks_with_a_known_end();
  files();
  standard_output();
  passing();
  spawning();
}
