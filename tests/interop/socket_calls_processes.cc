// Duplicated descriptors, signals, other processes and stdio.
#include <sys/syscall.h>

#include <sys/un.h>

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

void each_ten_milliseconds(int flags) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = flags;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 10'000}, {0, 10'000}};
  setitimer(ITIMER_REAL, &often, nullptr);
}

// What was sent until a signal comes is the result. If nothing was, the call ends or is restarted.
void signals_while_sending() {
  const Pair pair;
  const std::vector<char> much(64 << 20);
  each_ten_milliseconds(0);
  const ssize_t first = send(pair.here, much.data(), much.size(), 0);
  tell("a part is sent", first > 0 && first < static_cast<ssize_t>(much.size()));
  ssize_t sent = 0;
  do {
    sent = send(pair.here, much.data(), much.size(), 0);
  } while (sent > 0);
  tell("nothing is sent", error_or(sent));
  each_ten_milliseconds(SA_RESTART);
  std::thread later([&] {
    poll(nullptr, 0, 50);
    std::vector<char> into(1 << 20);
    while (recv(pair.there, into.data(), into.size(), 0) > 0) continue;
  });
  tell("restarted", error_or(send(pair.here, "x", 1, 0)));
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  shutdown(pair.here, SHUT_WR);
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

// Without fork(3) of the C library.
void clones() {
  const Pair pair;
  const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    echo(pair.there);
    _exit(0);
  }
  say(pair.here, "to a clone");
  tell("by a clone", receive_text(pair.here));
  waitpid(static_cast<pid_t>(child), nullptr, 0);
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

// A message that passes a descriptor, with one byte, through a Unix domain socket.
struct PassedDescriptor {
  PassedDescriptor() {
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = space.data();
    message.msg_controllen = space.size();
  }
  // Returns as sendmsg(2). `bytes`: the length that the part with the descriptor states.
  ssize_t send(int local, int fd, std::size_t bytes = CMSG_LEN(sizeof(int))) {
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = bytes;
    std::memcpy(CMSG_DATA(head), &fd, sizeof(int));
    return sendmsg(local, &message, 0);
  }
  int receive(int local) {
    int fd = -1;
    if (recvmsg(local, &message, 0) == 1) {
      std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    }
    return fd;
  }

  char text[1]{};
  iovec piece{text, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
};

// A child that exists before the sockets it gets, and what it does with the one that comes.
struct Receiver {
  explicit Receiver(void (*use)(int fd)) {
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, local.data()) == 0, "socketpair");
    child = fork();
    if (child != 0) return;
    use(PassedDescriptor().receive(local[1]));
    _exit(0);
  }
  ~Receiver() {
    waitpid(child, nullptr, 0);
    close(local[0]);
    close(local[1]);
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;
  ssize_t pass(int fd) { return PassedDescriptor().send(local[0], fd); }

  std::array<int, 2> local{};
  pid_t child = -1;
};

void passing() {
  Receiver receiver(echo);
  Pair pair;
  tell("passed", receiver.pass(pair.there));
  close(pair.there);
  pair.there = -1;
  say(pair.here, "passed on");
  tell("by who got it", receive_text(pair.here));
  tell("its end too", receive_text(pair.here));
  tell("no descriptor passed", error_or(receiver.pass(-1)));
  for (const std::size_t bytes : {std::size_t{3}, std::size_t{1000}}) {
    tell("wrong length", error_or(PassedDescriptor().send(receiver.local[0], pair.here, bytes)));
  }
}

// The connection may be made when it is passed, or not yet.
void passing_while_connecting() {
  Receiver receiver([](int fd) {
    await(fd, POLLOUT);
    say(fd, "from elsewhere");
  });
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  const int here = connect_to(address, SOCK_NONBLOCK);
  tell("connecting one passed", receiver.pass(here));
  close(here);
  const int there = accept(listener, nullptr, nullptr);
  tell("it was connected", receive_text(there));
  close(there);
  close(listener);
}

// As a server hands its listener over to its successor. Both may accept.
void passing_a_listener() {
  Receiver receiver([](int listener) {
    const int there = accept(listener, nullptr, nullptr);
    echo(there);
    close(there);
    close(listener);
  });
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  tell("listener passed", receiver.pass(listener));
  int here = connect_to(address);
  say(here, "to the successor");
  tell("accepted there", receive_text(here));
  close(here);
  waitpid(receiver.child, nullptr, 0);
  here = connect_to(address);
  say(here, "to the first one");
  const int there = accept(listener, nullptr, nullptr);
  tell("accepted here", receive_text(there));
  close(there);
  close(here);
  close(listener);
}

// The other process connects it: as SOCKS servers do, whose processes have different rights.
void passing_before_connecting(bool bound) {
  static sockaddr_in address{};
  const int listener = listen_anywhere(address);
  Receiver receiver([](int fd) {
    need(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "connect");
    say(fd, "connected elsewhere");
  });
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero{}};
  if (bound) need(bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0, "bind");
  tell(bound ? "bound one passed" : "new one passed", receiver.pass(fd));
  close(fd);
  const int there = accept(listener, nullptr, nullptr);
  tell("from there", receive_text(there));
  tell("and its end", receive_text(there));
  close(there);
  close(listener);
}

// The other process binds it, and the program goes on with its own descriptor.
void passing_to_be_bound() {
  Receiver receiver([](int fd) {
    sockaddr_in any{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero{}};
    need(bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0, "bind");
  });
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  tell("to be bound", receiver.pass(fd));
  waitpid(receiver.child, nullptr, 0);
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  need(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0, "getsockname");
  tell("is bound", address.sin_port != 0);
  tell("listens", error_or(listen(fd, 8)));
  const int here = connect_to(address);
  say(here, "to where it was bound");
  const int there = accept(fd, nullptr, nullptr);
  tell("arrives", receive_text(there));
  close(there);
  close(here);
  close(fd);
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

// The C library closes the descriptor of a file itself. What has that number afterwards is not the
// connection, whether the program opens it or it is opened to make another connection.
void closing_by_a_file() {
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  const int next = socket(AF_INET, SOCK_STREAM, 0);
  {
    Pair pair;
    const int lower = dup(pair.here);  // the number of the listener that Pair has closed
    std::FILE* const file = fdopen(pair.there, "r+");
    std::fputs("from a file", file);
    std::fclose(file);
    const int other = socket(AF_UNIX, SOCK_DGRAM, 0);
    tell("has the number of the file", other == pair.there);
    pair.there = -1;
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path{}};
    const socklen_t no_path = sizeof name.sun_family;  // the kernel chooses a name, unix(7)
    tell("bind of another kind",
         error_or(bind(other, reinterpret_cast<sockaddr*>(&name), no_path)));
    socklen_t bytes = sizeof name;
    getsockname(other, reinterpret_cast<sockaddr*>(&name), &bytes);
    tell("its family", name.sun_family == AF_UNIX);
    for (const int fd : {lower, other}) close(fd);
    tell("fputs before the end", receive_text(pair.here));
    tell("end by fclose", receive_text(pair.here));
  }
  need(connect(next, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "connect");
  const int there = accept(listener, nullptr, nullptr);
  say(next, "afterwards");
  tell("the next connection", receive_text(there));
  for (const int fd : {next, there, listener}) close(fd);
}

// A child that ends by _exit(2) does not write what stdio has kept for the parent.
void ends_without_stdio() {
  Pair pair;
  std::printf("written once\n");
  const pid_t child = fork();
  if (child == 0) {
    say(pair.there, "from the child");
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  tell("of a child that ends at once", receive_text(pair.here));
}

}  // namespace

void share_sockets() {
  copies();
  resets();
  signals();
  signals_while_sending();
  forks();
  clones();
  forks_after_the_end();
  forks_with_a_known_end();
  files();
  closing_by_a_file();
  ends_without_stdio();
  standard_output();
  passing();
  passing_while_connecting();
  passing_a_listener();
  passing_before_connecting(false);
  passing_before_connecting(true);
  passing_to_be_bound();
  spawning();
}
