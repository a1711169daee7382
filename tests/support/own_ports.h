// The ports that this process has open, as the kernel lists them (proc_pid_net(5)).
#pragma once

#include <arpa/inet.h>

#include <array>
#include <charconv>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace weft::test {

struct OwnPort {
  std::string protocol;  // "tcp" or "udp"
  std::string address;   // that it is bound to
  std::uint16_t port = 0;

  auto operator<=>(const OwnPort&) const = default;
};

inline std::set<std::string> own_socket_inodes() {
  constexpr std::string_view before = "socket:[";
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code failed;
    const std::string target = std::filesystem::read_symlink(entry.path(), failed);
    if (!target.starts_with(before)) continue;
    inodes.insert(target.substr(before.size(), target.size() - before.size() - 1));
  }
  return inodes;
}

// "0100007F:7001" and its like: words of 32 bits in the byte order of memory.
inline OwnPort parse_own_port(const std::string& protocol, std::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < colon / 8; ++i) {
    std::from_chars(text.data() + i * 8, text.data() + i * 8 + 8, words.at(i), 16);
  }
  std::array<char, INET6_ADDRSTRLEN> address{};
  inet_ntop(colon == 8 ? AF_INET : AF_INET6, words.data(), address.data(), address.size());
  OwnPort found{.protocol = protocol.substr(0, 3), .address = address.data()};
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), found.port, 16);
  return found;
}

// Listening TCP ports and UDP ports that are not connected; an empty list where there is no /proc.
inline std::set<OwnPort> own_ports() {
  const auto inodes = own_socket_inodes();
  std::set<OwnPort> found;
  for (const std::string protocol : {"tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream file("/proc/net/" + protocol);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::vector<std::string> word(10);
      for (std::string& next : word) words >> next;
      // The local address, the state (TCP_LISTEN, TCP_CLOSE) and the inode.
      const bool open = word[3] == (protocol.starts_with("tcp") ? "0A" : "07");
      if (open && inodes.contains(word[9])) found.insert(parse_own_port(protocol, word[1]));
    }
  }
  return found;
}

}  // namespace weft::test
