#include "interpose/newcomer.h"

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

#include "interpose/socket.h"

namespace weft::interpose {
namespace {

using Clock = std::chrono::steady_clock;

// What a stream's request begins with: RFC 5044 §7.1.1.
constexpr std::string_view request_key = "MPA ID Req Frame";
// Streams speak at once. Where plain clients are served, one that is silent for so long is taken
// for one that waits for the server's first word.
constexpr std::chrono::seconds short_silence{1};
constexpr std::chrono::seconds long_silence{5};
// From the first bytes of a request to its last.
constexpr std::chrono::milliseconds rest_of_request{5000};

enum class First { stream, plain, gone };

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

// Until there are more bytes than so many, or no more will come. False where the time is over.
bool await_more(int fd, int bytes, Clock::time_point until) {
  const int wanted = bytes + 1;
  next::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  pollfd entry{fd, POLLIN | POLLRDHUP, 0};
  const int ready = left > 0 ? next::poll(&entry, 1, static_cast<int>(left)) : 0;
  constexpr int any = 1;
  next::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &any, sizeof any);
  return (ready > 0 && (entry.revents & POLLRDHUP) == 0) || (ready < 0 && errno == EINTR);
}

// Takes nothing away. Who ends without a word may still listen.
First first_of(int fd, Clock::duration patience) {
  const auto until = Clock::now() + patience;
  std::array<char, request_key.size()> said;
  while (true) {
    ssize_t got = next::recv(fd, said.data(), said.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && errno != EAGAIN && errno != EINTR) return First::gone;
    if (got == 0) return First::plain;
    got = std::max<ssize_t>(got, 0);
    const std::string_view words(said.data(), static_cast<std::size_t>(got));
    if (!request_key.starts_with(words)) return First::plain;
    if (words.size() == request_key.size()) return First::stream;
    if (!await_more(fd, static_cast<int>(got), until)) return First::plain;
  }
}

}  // namespace

std::optional<Asking> hear(Descriptor connection, const stream::Options& options,
                           Patience patience) {
  const bool plain_too = may_fall_back();
  const bool hurry = plain_too || patience == Patience::little;
  const auto first = first_of(connection.get(), hurry ? short_silence : long_silence);
  if (first == First::stream) {
    auto listener = stream::Listener::for_connections(options);
    listener.adopt(connection.release());
    // The kernel's own waiting: next() would take over what the program's threads wait for.
    pollfd entry{listener.fd(), POLLIN, 0};
    next::poll(&entry, 1, static_cast<int>(rest_of_request.count()));
    auto request = listener.next(Deadline::now());
    if (!request) return std::nullopt;
    return Asking(std::move(*request));
  }
  if (first == First::plain && plain_too) {
    say(text_of_peer(connection.get()) +
        " speaks plain TCP: accepted without RDMA (--sockets=fallback)");
    return Asking(std::move(connection));
  }
  next::shutdown(connection.get(), SHUT_RDWR);  // a child may have a copy
  return std::nullopt;
}

void keep_silent_back(int kernel) {
  const int seconds = may_fall_back() ? 1 : 3;
  int known = 0;
  socklen_t bytes = sizeof known;
  next::getsockopt(kernel, IPPROTO_TCP, TCP_DEFER_ACCEPT, &known, &bytes);
  if (known > 0) return;
  next::setsockopt(kernel, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
}

Newcomer let_in(Asking asking) {
  if (auto* request = std::get_if<stream::Request>(&asking)) return std::move(*request).accept();
  return std::move(std::get<Descriptor>(asking));
}

}  // namespace weft::interpose
