#include "interpose/accepted_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>

#include "interpose/process.h"

namespace weft::interpose {
namespace {

using Clock = std::chrono::steady_clock;

// The first bytes of a stream's MPA request (RFC 5044 §7.1.1).
constexpr std::string_view request_key = "MPA ID Req Frame";
// Streams send their request at once. A client that is silent for this time is taken for plain TCP:
// in some protocols the server sends first.
constexpr std::chrono::seconds short_silence{1};
constexpr std::chrono::seconds long_silence{5};
// From the first bytes of a request to its last byte.
constexpr std::chrono::milliseconds rest_of_request{5000};

enum class Protocol { stream, plain, disconnected };

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

// Waits until more than `bytes` bytes have arrived. Returns false after `until`, or if the peer has
// ended its side. SO_RCVLOWAT makes poll(2) ignore the bytes that are there already.
bool wait_for_more(int fd, int bytes, Clock::time_point until) {
  const int wanted = bytes + 1;
  next::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  pollfd entry{fd, POLLIN | POLLRDHUP, 0};
  const int ready = left > 0 ? next::poll(&entry, 1, static_cast<int>(left)) : 0;
  constexpr int any = 1;
  next::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &any, sizeof any);
  return (ready > 0 && (entry.revents & POLLRDHUP) == 0) || (ready < 0 && errno == EINTR);
}

// Looks at the first bytes and leaves them in the socket. A client that has ended its side may
// still receive, so it counts as plain TCP.
Protocol identify_protocol(int fd, Clock::duration timeout) {
  const auto until = Clock::now() + timeout;
  std::array<char, request_key.size()> bytes;
  while (true) {
    ssize_t got = next::recv(fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && errno != EAGAIN && errno != EINTR) return Protocol::disconnected;
    if (got == 0) return Protocol::plain;
    got = std::max<ssize_t>(got, 0);
    const std::string_view start(bytes.data(), static_cast<std::size_t>(got));
    if (!request_key.starts_with(start)) return Protocol::plain;
    if (start.size() == request_key.size()) return Protocol::stream;
    if (!wait_for_more(fd, static_cast<int>(got), until)) return Protocol::plain;
  }
}

}  // namespace

std::optional<ClassifiedClient> classify(Descriptor connection, const stream::Options& options,
                                         ClassifyTimeout timeout) {
  const bool serves_plain = tcp_fallback_allowed();
  const bool is_short = serves_plain || timeout == ClassifyTimeout::in_accept;
  const auto protocol =
      identify_protocol(connection.get(), is_short ? short_silence : long_silence);
  if (protocol == Protocol::stream) {
    auto listener = stream::Listener::for_connections(options);
    listener.adopt(connection.release());
    // Wait by the kernel's poll(2). Listener::next() would count as a waiting thread of the program
    // and take the lead from one that really waits (see WaitLeader).
    pollfd entry{listener.fd(), POLLIN, 0};
    next::poll(&entry, 1, static_cast<int>(rest_of_request.count()));
    auto request = listener.next(Deadline::now());
    if (!request) return std::nullopt;
    return ClassifiedClient(std::move(*request));
  }
  if (protocol == Protocol::plain && serves_plain) {
    print_notice(text_of_peer(connection.get()) +
                 " speaks plain TCP: accepted without RDMA (--sockets=fallback)");
    return ClassifiedClient(std::move(connection));
  }
  next::shutdown(connection.get(), SHUT_RDWR);  // also for a copy that a child may have
  return std::nullopt;
}

// The kernel's limit is at least as long as classify() would wait.
void defer_silent_clients(int kernel) {
  const int seconds = tcp_fallback_allowed() ? 1 : 3;
  int known = 0;
  socklen_t bytes = sizeof known;
  next::getsockopt(kernel, IPPROTO_TCP, TCP_DEFER_ACCEPT, &known, &bytes);
  if (known > 0) return;
  next::setsockopt(kernel, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
}

AcceptedClient complete(ClassifiedClient classified, stream::Options options) {
  auto* request = std::get_if<stream::Request>(&classified);
  if (!request) return std::move(std::get<Descriptor>(classified));
  HiddenPair pair;
  options.bell = pair.hidden_end.get();
  return AcceptedStream{std::move(pair), std::move(*request).accept({}, options)};
}

}  // namespace weft::interpose
