#include "interpose/inherited_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

#include "interpose/next.h"

namespace weft::interpose {
namespace {

// The size where the program sets none, and the least that it gets.
constexpr std::uint32_t least_buffer_bytes = 128 * 1024;

int to_int(const std::vector<std::byte>& value, int fallback) {
  int number = fallback;
  if (value.size() >= sizeof number) std::memcpy(&number, value.data(), sizeof number);
  return number;
}

}  // namespace

const SocketOption* InheritedOptions::find(int level, int name) const {
  const auto found = std::ranges::find_if(values, [&](const SocketOption& known) {
    return known.level == level && known.name == name;
  });
  return found == values.end() ? nullptr : &*found;
}

void InheritedOptions::set(SocketOption option) {
  std::erase_if(values, [&](const SocketOption& known) {
    return known.level == option.level && known.name == option.name;
  });
  values.push_back(std::move(option));
}

// The kernel socket is asked for what the program has set, because a process that has inherited the
// socket has no record of the calls.
InheritedOptions inherited_options_of(int kernel) {
  static constexpr std::array<std::pair<int, int>, 7> inherited = {
      std::pair(SOL_SOCKET, SO_KEEPALIVE),   std::pair(IPPROTO_TCP, TCP_KEEPIDLE),
      std::pair(IPPROTO_TCP, TCP_KEEPINTVL), std::pair(IPPROTO_TCP, TCP_KEEPCNT),
      std::pair(SOL_SOCKET, SO_LINGER),      std::pair(SOL_SOCKET, SO_RCVTIMEO),
      std::pair(SOL_SOCKET, SO_SNDTIMEO)};
  InheritedOptions found;
  socklen_t bytes = sizeof found.family;
  next::getsockopt(kernel, SOL_SOCKET, SO_DOMAIN, &found.family, &bytes);
  for (const auto& [level, name] : inherited) {
    // A timeval is the largest of these values; getsockopt(2) returns the real size.
    std::vector<std::byte> value(sizeof(timeval));
    bytes = static_cast<socklen_t>(value.size());
    if (next::getsockopt(kernel, level, name, value.data(), &bytes) != 0) continue;
    value.resize(bytes);
    found.values.push_back({level, name, std::move(value)});
  }
  return found;
}

stream::Options stream_options(const InheritedOptions& inherited) {
  const auto number = [&](int level, int name, int fallback) {
    const SocketOption* known = inherited.find(level, name);
    return known ? to_int(known->value, fallback) : fallback;
  };
  const auto buffer = [&](int name) {
    const auto wanted = static_cast<std::uint32_t>(std::max(number(SOL_SOCKET, name, 0), 0));
    return std::clamp(wanted, least_buffer_bytes, stream::max_buffer_bytes);
  };
  stream::Options options;
  options.send_buffer_bytes = buffer(SO_SNDBUF);
  options.receive_buffer_bytes = buffer(SO_RCVBUF);
  // As with TCP: buffers grow unless the program has set their size (tcp(7), tcp_moderate_rcvbuf).
  const bool asked = inherited.find(SOL_SOCKET, SO_SNDBUF) || inherited.find(SOL_SOCKET, SO_RCVBUF);
  options.growth_bytes = asked ? 0 : stream::default_growth_bytes;
  if (number(SOL_SOCKET, SO_KEEPALIVE, 0) != 0) {
    // The defaults are those of tcp(7).
    using std::chrono::seconds;
    options.keepalive =
        stream::Keepalive{seconds(number(IPPROTO_TCP, TCP_KEEPIDLE, 7200)),
                          seconds(number(IPPROTO_TCP, TCP_KEEPINTVL, 75)),
                          static_cast<std::uint32_t>(number(IPPROTO_TCP, TCP_KEEPCNT, 9))};
  }
  return options;
}

// close(2) with SO_LINGER on and a time of 0 resets a TCP connection instead of ending it.
bool resets_at_close(const InheritedOptions& inherited) {
  const SocketOption* known = inherited.find(SOL_SOCKET, SO_LINGER);
  linger lingering{};
  if (!known || known->value.size() < sizeof lingering) return false;
  std::memcpy(&lingering, known->value.data(), sizeof lingering);
  return lingering.l_onoff != 0 && lingering.l_linger == 0;
}

// A time of zero means no timeout (socket(7), SO_RCVTIMEO). Fractions are rounded up, so that a
// short timeout does not become none. The upper limit keeps the result within an int.
int timeout_ms_of(const SocketOption& option) {
  timeval time{};
  if (option.value.size() < sizeof time) return -1;
  std::memcpy(&time, option.value.data(), sizeof time);
  const auto ms = time.tv_sec * 1000 + (time.tv_usec + 999) / 1000;
  return ms == 0 ? -1 : static_cast<int>(std::min<long>(ms, 1'000'000'000));
}

}  // namespace weft::interpose
