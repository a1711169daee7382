// Datagrams with rsocket(7), checked against udp(7): a program that does not use Weft's own
// interfaces.
//
// datagram_manual              checks the result of each call, in one process
// datagram_manual echo         prints its port, returns all datagrams until it receives "end"
// datagram_manual ask PORT     several sockets send to an echo
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "interop/need.h"

namespace {

constexpr int patience_ms = 60'000;

struct Name {
  sockaddr_in in{};
  socklen_t bytes = sizeof in;

  explicit Name(std::uint16_t port = 0) {
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in.sin_port = htons(port);
  }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&in); }
  [[nodiscard]] int port() const { return ntohs(in.sin_port); }
  friend bool operator==(const Name& a, const Name& b) {
    return a.in.sin_addr.s_addr == b.in.sin_addr.s_addr && a.in.sin_port == b.in.sin_port;
  }
};

int make() {
  const int socket = rsocket(AF_INET, SOCK_DGRAM, 0);
  NEED(socket >= 0);
  return socket;
}

int make_bound(Name& name) {
  const int socket = make();
  name = Name();
  NEED(rbind(socket, name.raw(), name.bytes) == 0);
  NEED(rgetsockname(socket, name.raw(), &name.bytes) == 0);
  NEED(name.port() != 0);
  return socket;
}

bool is_ready(int socket, short events, int timeout_ms = patience_ms) {
  pollfd entry{socket, events, 0};
  return rpoll(&entry, 1, timeout_ms) == 1 && (entry.revents & events) == events;
}

std::string receive(int socket, Name* from = nullptr) {
  char text[2000];
  Name sender;
  NEED(is_ready(socket, POLLIN));
  const ssize_t got = rrecvfrom(socket, text, sizeof text, 0, sender.raw(), &sender.bytes);
  NEED(got >= 0);
  if (from) *from = sender;
  return std::string(text, static_cast<std::size_t>(got));
}

void send_to(int socket, const std::string& text, Name to) {
  NEED(rsendto(socket, text.data(), text.size(), 0, to.raw(), to.bytes) ==
       static_cast<ssize_t>(text.size()));
}

// --- One process ---------------------------------------------------------------------------------

void makes_and_refuses() {
  NEED_ERROR(rsocket(AF_INET, SOCK_DGRAM, IPPROTO_TCP), EPROTONOSUPPORT);
  NEED_ERROR(rsocket(AF_INET, SOCK_RAW, 0), ESOCKTNOSUPPORT);
  Name name;
  const int socket = make_bound(name);
  NEED_ERROR(rbind(socket, name.raw(), name.bytes), EINVAL);
  NEED_ERROR(rlisten(socket, 1), EOPNOTSUPP);
  NEED_ERROR(raccept(socket, nullptr, nullptr), EOPNOTSUPP);
  NEED_ERROR(rsend(socket, "x", 1, 0), EDESTADDRREQ);
  NEED_ERROR(rrecv(socket, name.raw(), 1, MSG_DONTWAIT), EAGAIN);
  Name none;
  NEED_ERROR(rgetpeername(socket, none.raw(), &none.bytes), ENOTCONN);
  const int other = make();
  NEED_ERROR(rbind(other, name.raw(), name.bytes), EADDRINUSE);
  NEED(rclose(socket) == 0);
  NEED(rbind(other, name.raw(), name.bytes) == 0);  // the address is free again
  NEED(rclose(other) == 0);
}

void sends_to_anybody() {
  Name of_a, of_b, from;
  const int a = make_bound(of_a);
  const int b = make_bound(of_b);
  NEED(is_ready(a, POLLOUT));
  NEED(!is_ready(b, POLLIN, 0));
  send_to(a, "first", of_b);
  send_to(a, "", of_b);
  send_to(a, "third", of_b);
  NEED(receive(b, &from) == "first" && from == of_a);
  NEED(receive(b, &from).empty() && from == of_a);
  NEED(receive(b) == "third");
  send_to(b, "back", from);
  NEED(receive(a, &from) == "back" && from == of_b);
  send_to(a, "to myself", of_a);
  NEED(receive(a, &from) == "to myself" && from == of_a);
  NEED(rclose(a) == 0 && rclose(b) == 0);
}

void connects() {
  Name of_server, of_other, from;
  const int server = make_bound(of_server);
  const int other = make_bound(of_other);
  const int client = make();  // binds itself
  NEED(rconnect(client, of_server.raw(), of_server.bytes) == 0);
  Name peer;
  NEED(rgetpeername(client, peer.raw(), &peer.bytes) == 0 && peer == of_server);
  NEED(rsend(client, "hello", 5, 0) == 5);
  NEED(receive(server, &from) == "hello");
  // A connected socket receives from its peer only: of the two messages the second one arrives.
  send_to(other, "intruder", from);
  send_to(other, "done", of_server);
  NEED(receive(server) == "done");
  send_to(server, "welcome", from);
  NEED(receive(client) == "welcome");
  NEED(rclose(client) == 0 && rclose(other) == 0 && rclose(server) == 0);
}

// A restarted peer at the same address has another queue pair.
void finds_its_peer_again() {
  Name name;
  int server = make_bound(name);
  const int client = make();
  NEED(rconnect(client, name.raw(), name.bytes) == 0);
  NEED(rsend(client, "first", 5, 0) == 5);
  NEED(receive(server) == "first");
  NEED(rclose(server) == 0);
  server = make();
  NEED(rbind(server, name.raw(), name.bytes) == 0);
  int tries = 0;
  do {
    NEED(++tries < 600);
    NEED(rsend(client, "second", 6, 0) == 6);
  } while (!is_ready(server, POLLIN, 100));
  NEED(receive(server) == "second");
  NEED(rclose(client) == 0 && rclose(server) == 0);
}

void cuts_and_peeks() {
  Name name, from;
  const int socket = make_bound(name);
  send_to(socket, "0123456789", name);
  NEED(is_ready(socket, POLLIN));
  char text[100];
  NEED(rrecv(socket, text, 4, MSG_PEEK) == 4 && std::memcmp(text, "0123", 4) == 0);
  NEED(rrecv(socket, text, 4, MSG_PEEK | MSG_TRUNC) == 10);
  char a[2], b[3];
  iovec in[2] = {{a, 2}, {b, 3}};
  msghdr message{};
  message.msg_name = from.raw();
  message.msg_namelen = from.bytes;
  message.msg_iov = in;
  message.msg_iovlen = 2;
  NEED(rrecvmsg(socket, &message, 0) == 5);
  NEED(std::memcmp(a, "01", 2) == 0 && std::memcmp(b, "234", 3) == 0);
  NEED(message.msg_flags == MSG_TRUNC && message.msg_namelen == sizeof(sockaddr_in));
  NEED(from == name);
  NEED(!is_ready(socket, POLLIN, 0));  // the rest of the datagram is discarded

  std::string one = "one", two = "two";
  iovec out[2] = {{one.data(), 3}, {two.data(), 3}};
  msghdr sent{};
  sent.msg_name = name.raw();
  sent.msg_namelen = name.bytes;
  sent.msg_iov = out;
  sent.msg_iovlen = 2;
  NEED(rsendmsg(socket, &sent, 0) == 6);
  NEED(receive(socket) == "onetwo");
  const std::string long_one(60'000, 'x');
  NEED_ERROR(rsendto(socket, long_one.data(), long_one.size(), 0, name.raw(), name.bytes),
             EMSGSIZE);
  NEED_ERROR(rrecv(socket, text, 4, MSG_OOB), EOPNOTSUPP);
  NEED(rclose(socket) == 0);
}

void has_options() {
  const int socket = make();
  int value = 0;
  socklen_t bytes = sizeof value;
  NEED(rgetsockopt(socket, SOL_SOCKET, SO_TYPE, &value, &bytes) == 0 && value == SOCK_DGRAM);
  value = 3000;  // room for about two messages
  NEED(rsetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &value, sizeof value) == 0);
  Name name;
  NEED(rbind(socket, name.raw(), name.bytes) == 0);
  NEED_ERROR(rsetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &value, sizeof value), EISCONN);
  NEED(rgetsockname(socket, name.raw(), &name.bytes) == 0);
  NEED(rgetsockopt(socket, SOL_SOCKET, SO_ERROR, &value, &bytes) == 0 && value == 0);
  // Datagrams that find no room are dropped.
  Name of_sender;
  const int sender = make_bound(of_sender);
  for (int i = 0; i < 200; ++i) send_to(sender, std::to_string(i), name);
  NEED(receive(socket) == "0");
  NEED(rfcntl(socket, F_SETFL, O_NONBLOCK) == 0);
  int more = 0;
  char text[10];
  while (rrecv(socket, text, sizeof text, 0) >= 0) ++more;
  NEED(errno == EAGAIN && more < 199);
  NEED(rclose(socket) == 0 && rclose(sender) == 0);
}

void wakes_whoever_waits() {
  Name name;
  const int socket = make_bound(name);
  auto waiting = std::async(std::launch::async, [&] {
    char text[10];
    return rrecv(socket, text, sizeof text, 0);
  });
  auto polling = std::async(std::launch::async, [&] { return is_ready(socket, POLLIN); });
  send_to(socket, "for one", name);
  NEED(waiting.get() == 7);
  send_to(socket, "for the other", name);
  NEED(polling.get());
  NEED(rclose(socket) == 0);
}

// rpoll() learns of what happens to a socket that is bound while it waits.
void waits_before_it_is_bound() {
  Name name;
  const int socket = make();
  auto polling = std::async(std::launch::async, [&] { return is_ready(socket, POLLIN); });
  NEED(!is_ready(socket, POLLIN, 5));
  NEED(rbind(socket, name.raw(), name.bytes) == 0);
  NEED(rgetsockname(socket, name.raw(), &name.bytes) == 0);
  send_to(socket, "to myself", name);
  NEED(polling.get());
  NEED(rclose(socket) == 0);
}

// An error that was returned is no reason to report an event any more, and the next one is.
void reports_events_behind_an_error() {
  Name gone, name;
  NEED(rclose(make_bound(gone)) == 0);
  const int socket = make_bound(name);
  NEED(rconnect(socket, gone.raw(), gone.bytes) == 0);
  NEED(is_ready(socket, POLLIN));
  int error = 0;
  socklen_t bytes = sizeof error;
  NEED(rgetsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error != 0);
  NEED(!is_ready(socket, POLLIN, 0));
  NEED(rconnect(socket, name.raw(), name.bytes) == 0);
  auto polling = std::async(std::launch::async, [&] { return is_ready(socket, POLLIN); });
  NEED(!is_ready(socket, POLLIN, 5));
  send_to(socket, "to myself", name);
  NEED(polling.get());
  NEED(rclose(socket) == 0);
}

// --- Two processes -------------------------------------------------------------------------------

int echo() {
  Name name, from;
  const int socket = make_bound(name);
  std::printf("%d\n", name.port());
  std::fflush(stdout);
  while (true) {
    const std::string text = receive(socket, &from);
    if (text == "end") break;
    send_to(socket, text, from);
  }
  NEED(rclose(socket) == 0);
  std::printf("the echo has ended\n");
  return 0;
}

int ask(std::uint16_t port) {
  Name server(port);
  std::vector<int> sockets;
  for (int i = 0; i < 8; ++i) {
    sockets.push_back(make());
    if (i % 2 == 0) NEED(rconnect(sockets.back(), server.raw(), server.bytes) == 0);
  }
  for (int round = 0; round < 50; ++round) {
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      const std::string text = std::to_string(i) + ":" + std::string(round * 20, 'x');
      if (i % 2 == 0) {
        NEED(rsend(sockets[i], text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
      } else {
        send_to(sockets[i], text, server);
      }
    }
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      Name from;
      NEED(receive(sockets[i], &from) == std::to_string(i) + ":" + std::string(round * 20, 'x'));
      NEED(from == server);
    }
  }
  NEED(rsend(sockets[0], "end", 3, 0) == 3);
  for (const int socket : sockets) NEED(rclose(socket) == 0);
  std::printf("all answers came\n");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string_view what = count > 1 ? words[1] : "";
  if (what == "echo") return echo();
  if (what == "ask" && count > 2) return ask(static_cast<std::uint16_t>(std::atoi(words[2])));
  makes_and_refuses();
  sends_to_anybody();
  connects();
  finds_its_peer_again();
  cuts_and_peeks();
  has_options();
  wakes_whoever_waits();
  waits_before_it_is_bound();
  reports_events_behind_an_error();
  std::printf("all as udp(7) has it\n");
}
