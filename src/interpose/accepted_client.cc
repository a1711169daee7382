#include "interpose/accepted_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>

#include "interpose/process.h"

namespace weft::interpose {
namespace {

// Longer than the delays that are asked for in tests.
constexpr std::chrono::milliseconds longest_delay{5000};

// The text has numbers only, so that no name server can delay the thread that accepts.
std::string text_of_peer(int fd) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof name;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (next::getpeername(fd, reinterpret_cast<sockaddr*>(&name), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&name), bytes, host.data(), host.size(), port.data(),
                  port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "a client";
  }
  return std::string(host.data()) + " port " + port.data();
}

}  // namespace

AcceptedClient accept_stream(HiddenPair pair, stream::Request request, stream::Options options) {
  options.bell = pair.hidden_end.get();
  return AcceptedStream{std::move(pair), std::move(request).accept({}, options)};
}

// The device reads the whole request within adopt(), so it has either made a stream's request of it
// by then or refused it, and there is nothing to wait for. Only where delays are asked for the
// request comes later. This waits for it by the kernel's poll(2), because Listener::next() would
// count as a waiting thread of the program and take the lead from one that really waits (see
// WaitLeader).
std::optional<AcceptedClient> connect_stream(Descriptor connection,
                                             const stream::Options& options) {
  auto listener = stream::Listener::for_connections(options);
  listener.adopt(connection.release());
  if (requests_may_be_delayed()) {
    pollfd entry{listener.fd(), POLLIN, 0};
    next::poll(&entry, 1, static_cast<int>(longest_delay.count()));
  }
  auto request = listener.next(Deadline::now());
  if (!request) return std::nullopt;
  return accept_stream(HiddenPair(), std::move(*request), options);
}

std::optional<AcceptedClient> serve_plain(Descriptor connection, Refusal why) {
  if (!tcp_fallback_allowed()) {
    shut(connection);
    count_refusal(why);
    return std::nullopt;
  }
  print_notice(text_of_peer(connection.get()) +
               " speaks plain TCP: accepted without RDMA (--sockets=fallback)");
  return connection;
}

std::optional<AcceptedClient> serve_agreed(Descriptor connection) {
  if (!take_key(connection.get())) return std::nullopt;
  return connection;
}

bool take_key(int connection) {
  std::array<char, agreed_key.size()> key;
  const ssize_t got = next::recv(connection, key.data(), key.size(), MSG_DONTWAIT);
  if (got == static_cast<ssize_t>(key.size())) return true;
  count_refusal(Refusal::closed);
  return false;
}

// Clients that need longer are waited for here: ArrivingClients, UnfinishedClients.
bool defer_silent_clients(int kernel) {
  const int seconds = tcp_fallback_allowed() ? 1 : 3;
  int known = 0;
  socklen_t bytes = sizeof known;
  next::getsockopt(kernel, IPPROTO_TCP, TCP_DEFER_ACCEPT, &known, &bytes);
  if (known > 0) return false;
  return next::setsockopt(kernel, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds) == 0;
}

void stop_deferring(int kernel) {
  constexpr int none = 0;
  next::setsockopt(kernel, IPPROTO_TCP, TCP_DEFER_ACCEPT, &none, sizeof none);
}

}  // namespace weft::interpose
