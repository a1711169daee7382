// Common parts of socket_calls: printing results, waiting, making connections.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

inline void tell(const char* what, const std::string& found) {
  std::printf("%s: %s\n", what, found.c_str());
  std::fflush(stdout);
}
inline void tell(const char* what, long found) {
  tell(what, std::to_string(found));
}
inline std::string error_or(long done) {
  return done < 0 ? strerrorname_np(errno) : std::to_string(done);
}
inline void need(bool good, const char* what) {
  if (good) return;
  std::printf("cannot go on: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

inline std::string names_of(unsigned events) {
  std::string names;
  const std::pair<unsigned, const char*> known[] = {{POLLIN, "in "},       {POLLOUT, "out "},
                                                    {POLLERR, "err "},     {POLLHUP, "hup "},
                                                    {POLLRDHUP, "rdhup "}, {POLLNVAL, "nval "}};
  for (const auto& [bit, name] : known) names += events & bit ? name : "";
  return names.empty() ? "nothing" : names;
}

inline int listen_anywhere(sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  address = {
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero{}};
  socklen_t bytes = sizeof address;
  need(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0, "bind");
  need(listen(fd, 8) == 0, "listen");
  need(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0, "getsockname");
  return fd;
}

inline int connect_to(const sockaddr_in& address, int type = 0) {
  const int fd = socket(AF_INET, SOCK_STREAM | type, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    need(errno == EINPROGRESS, "connect");
  }
  return fd;
}

// A connection with both ends in this process; connect() succeeds before accept() is called.
struct Pair {
  explicit Pair(int type = 0) {
    sockaddr_in address{};
    const int listener = listen_anywhere(address);
    here = connect_to(address);
    there = accept4(listener, nullptr, nullptr, type);
    need(there >= 0, "accept4");
    close(listener);
  }
  ~Pair() {
    close(here);
    close(there);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  int here = -1;
  int there = -1;
};

inline unsigned await(int fd, short events) {
  pollfd entry{fd, events, 0};
  need(poll(&entry, 1, -1) == 1, "poll");
  return static_cast<unsigned>(entry.revents);
}
inline unsigned look(int fd, short events) {
  pollfd entry{fd, events, 0};
  need(poll(&entry, 1, 0) >= 0, "poll");
  return static_cast<unsigned>(entry.revents);
}
inline std::string receive_text(int fd, int flags = 0) {
  std::array<char, 256> text{};
  const ssize_t got = recv(fd, text.data(), text.size(), flags);
  return got < 0 ? error_or(got) : std::string(text.data(), static_cast<std::size_t>(got));
}
inline void say(int fd, const char* text) {
  need(send(fd, text, std::strlen(text), 0) == static_cast<ssize_t>(std::strlen(text)), "send");
}

// The parts of the program; each prints its results.
void wait_for_sockets();
void receive_up_to_limits();
void share_sockets();
void choose_descriptors();
