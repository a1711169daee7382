#include "verbs/waiting.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>

#include <array>
#include <cerrno>

#include "verbs/failure.h"

namespace weft::verbs::detail {
namespace {

constexpr std::array<std::string_view, 24> statuses{
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
};

constexpr std::array<std::string_view, 20> events{
    "CQ error",
    "local work queue catastrophic error",
    "local invalid request error",
    "local access violation",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration request failed",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "work queue fatal error",
};

constexpr std::array<std::string_view, 7> states{"RESET", "INIT", "RTR", "RTS",
                                                 "SQD",   "SQE",  "ERR"};

template <std::size_t count>
std::string_view name_in(const std::array<std::string_view, count>& names, unsigned code) {
  return code < count ? names[code] : "unknown";
}

}  // namespace

void set_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    fail(errno, "cannot make a descriptor non-blocking");
  }
}

bool await_readable(int fd, const Deadline& deadline) {
  while (true) {
    pollfd entry{fd, POLLIN, 0};
    const int ready = poll(&entry, 1, deadline.poll_timeout_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail(errno, "cannot wait for an event");
    if (deadline.passed()) return false;
  }
}

std::string_view event_name(ibv_event_type type) {
  return name_in(events, type);
}

std::string_view status_name(ibv_wc_status status) {
  return name_in(statuses, status);
}

std::string_view state_name(ibv_qp_state state) {
  return name_in(states, state);
}

std::string address_text(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(in.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &in.sin6_addr, text.data(), text.size());
    return fmt::format("[{}]:{}", text.data(), ntohs(in.sin6_port));
  }
  return {};
}

}  // namespace weft::verbs::detail
