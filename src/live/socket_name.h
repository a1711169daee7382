// Where `weft top` asks a process with a device for its counters: a Unix socket in the abstract
// namespace, "weft-top/PID/RANDOM". The kernel lists these names in /proc/net/unix, so that nothing
// has to be configured and no file is left behind. PID is the number by which the process knows
// itself, which is another one in other namespaces of processes.
//
// The client sends one byte for each report that it wants. The answer is a JSON document with a
// zero byte behind it. As long as a client is connected, the device takes the times of requests.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace weft::live {

inline constexpr std::string_view socket_prefix = "weft-top/";

// `random`: another process may have taken the name without it. It is no secret: the kernel names
// the user at both ends.
[[nodiscard]] inline std::string socket_name(pid_t pid, std::uint64_t random) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string name = std::string(socket_prefix) + std::to_string(pid) + "/";
  for (int shift = 60; shift >= 0; shift -= 4) name += digits[random >> shift & 15];
  return name;
}

// The process number in such a name; nothing for other names.
[[nodiscard]] inline std::optional<pid_t> pid_of(std::string_view name) {
  if (!name.starts_with(socket_prefix)) return std::nullopt;
  name.remove_prefix(socket_prefix.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  const bool whole = error == std::errc() && end != name.data() + name.size() && *end == '/';
  return whole && pid > 0 ? std::optional(pid) : std::nullopt;
}

struct SocketAddress {
  sockaddr_un address{};
  socklen_t bytes = 0;
  [[nodiscard]] const sockaddr* generic() const {
    return reinterpret_cast<const sockaddr*>(&address);
  }
};

// A leading zero byte makes a name abstract (unix(7)).
[[nodiscard]] inline SocketAddress address_of(std::string_view name) {
  SocketAddress result;
  result.address.sun_family = AF_UNIX;
  const std::size_t count = std::min(name.size(), sizeof result.address.sun_path - 1);
  std::memcpy(result.address.sun_path + 1, name.data(), count);
  result.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return result;
}

}  // namespace weft::live
