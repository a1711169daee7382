#include "verbs/waiting.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>

#include "provider/names.h"
#include "provider/shared.h"
#include "verbs/failure.h"

namespace weft::verbs::detail {
namespace {

// The order is that of enum ibv_qp_state.
constexpr std::array<std::string_view, 7> states{"RESET", "INIT", "RTR", "RTS",
                                                 "SQD",   "SQE",  "ERR"};

}  // namespace

// All descriptors of the layer are non-blocking: a thread waits in poll(2), where it can respect
// its deadline. FIONBIO changes this flag alone, so the others need not be read first.
void set_nonblocking(int fd) {
  int on = 1;
  if (ioctl(fd, FIONBIO, &on) < 0) {
    fail(errno, "cannot make a descriptor non-blocking");
  }
}

// Uses the provider's wait(), which also drives the embedded device's progress in this thread.
bool await_readable(int fd, const Deadline& deadline) {
  while (!deadline.passed()) {
    pollfd entry{fd, POLLIN, 0};
    const int ready = provider::wait({&entry, 1}, deadline.poll_timeout_ms());
    if (ready > 0) return true;
    // A signal does not end the wait, but the deadline is looked at again.
    if (ready < 0 && errno != EINTR) fail(errno, "cannot wait for an event");
  }
  return false;
}

std::string_view event_name(ibv_event_type type) {
  return provider::name_of(type);
}

std::string_view status_name(ibv_wc_status status) {
  return provider::name_of(status);
}

std::string_view state_name(ibv_qp_state state) {
  return state < states.size() ? states[state] : "unknown";
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
