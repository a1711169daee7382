// Programs that close all descriptors that they did not open, and that choose the numbers of their
// files themselves.
#include <sys/syscall.h>

#include <algorithm>
#include <utility>

#include "interop/socket_calls.h"

namespace {

// libuv closes so. The next file gets the number.
void close_by_system_call() {
  Pair pair;
  const int number = pair.here;
  need(syscall(SYS_close, std::exchange(pair.here, -1)) == 0, "close");
  tell("the other end", receive_text(pair.there));
  std::array<int, 2> pipe_ends{};
  need(pipe(pipe_ends.data()) == 0, "pipe");
  tell("the number is free", pipe_ends[0] == number);
  need(write(pipe_ends[1], "of the pipe", 11) == 11, "write");
  std::array<char, 32> text{};
  const ssize_t got = read(pipe_ends[0], text.data(), text.size());
  tell("read", got < 0 ? error_or(got) : text.data());
  for (const int fd : pipe_ends) close(fd);
  Pair other;
  const long copy = syscall(SYS_dup, other.here);
  close(std::exchange(other.here, static_cast<int>(copy)));
  say(other.here, "by a copy");
  tell("sent", receive_text(other.there));
}

// As inetd does: stdio has the number from the start.
void accept_as_input() {
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  const int here = connect_to(address);
  close(STDIN_FILENO);
  tell("accepted as", accept(listener, nullptr, nullptr));
  say(here, "a line\n");
  std::array<char, 32> line{};
  tell("stdio reads", std::fgets(line.data(), line.size(), stdin) ? line.data() : "nothing");
  close(STDIN_FILENO);
  need(open("/dev/null", O_RDONLY) == STDIN_FILENO, "open");
  for (const int fd : {here, listener}) close(fd);
}

// Whether a connection that exists still carries bytes, and a new one does.
void tell_use(const char* after, const Pair& pair) {
  say(pair.here, "here");
  say(pair.there, receive_text(pair.there).c_str());
  tell(after, receive_text(pair.here));
  const Pair fresh;
  say(fresh.there, "a new connection");
  tell(after, receive_text(fresh.here));
}

void close_the_rest() {
  const Pair pair;
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  const int first = std::max({pair.here, pair.there, listener}) + 1;
  const auto from = static_cast<unsigned>(first);
  tell("close_range", close_range(from, ~0U, 0));
  tell_use("after close_range", pair);
  closefrom(first);
  tell_use("after closefrom", pair);
  int closed = 0;
  for (int fd = first; fd < 4096; ++fd) closed += close(fd) == 0;
  tell("descriptors that nobody knows", closed);
  tell_use("after close of each", pair);
  tell("a range that ends before it begins", error_or(close_range(from, from - 1, 0)));
  tell("wrong flags", error_or(close_range(from, ~0U, 1U << 20)));
  const int here = connect_to(address);
  const int there = accept(listener, nullptr, nullptr);
  say(here, "of the listener");
  tell("a connection", receive_text(there));
  for (const int fd : {listener, here, there}) close(fd);
}

// Of what it inherited, a child keeps one connection.
void close_the_rest_in_child() {
  const Pair pair;
  const pid_t child = fork();
  if (child == 0) {
    if (pair.there > 3) close_range(3, static_cast<unsigned>(pair.there) - 1, 0);
    closefrom(pair.there + 1);
    say(pair.there, receive_text(pair.there).c_str());
    _exit(0);
  }
  say(pair.here, "to the child");
  tell("by a child that closed the rest", receive_text(pair.here));
  waitpid(child, nullptr, 0);
}

// As a shell does for `exec 7>file`: what others write to such a number would be in the file.
void choose_numbers() {
  const Pair pair;
  std::FILE* const file = std::tmpfile();
  const int first = std::max({pair.here, pair.there, fileno(file)}) + 1;
  constexpr int last = 255;
  for (int fd = first; fd <= last; ++fd) need(dup2(fileno(file), fd) == fd, "dup2");
  tell_use("with files at all numbers", pair);
  struct stat status {};
  fstat(last, &status);
  tell("bytes in the file", status.st_size);
  closefrom(first);
  std::fclose(file);
}

}  // namespace

void choose_descriptors() {
  close_by_system_call();
  accept_as_input();
  close_the_rest();
  close_the_rest_in_child();
  choose_numbers();
}
