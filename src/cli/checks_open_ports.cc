// Which ports the programs on Weft have open, and to whom.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/checks.h"
#include "cli/terminal.h"

namespace weft::cli {
namespace {

// The ports of queue pairs without rdma_cm, and that of multicast groups behind them
// (device/connect/slots.h).
constexpr unsigned first_port = 28672;
constexpr unsigned last_port = first_port + 1024;

struct OpenPort {
  std::string protocol;
  std::string address;
  unsigned port = 0;
  std::string inode;
};

// As the kernel prints addresses in /proc/net: words of 32 bits as this host's numbers.
std::string address_of(std::string_view hex) {
  // The words keep the byte order of memory, so that inet_ntop(3) can take them as they are.
  std::array<std::uint32_t, 4> words{};
  const std::size_t count = hex.size() / 8;
  for (std::size_t i = 0; i < count && i < words.size(); ++i) {
    const std::string_view word = hex.substr(i * 8, 8);
    std::from_chars(word.data(), word.data() + word.size(), words[i], 16);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(count == 1 ? AF_INET : AF_INET6, words.data(), text.data(), text.size());
  return text.data();
}

// Listening TCP sockets, or UDP sockets that are not connected.
void read_open_ports(const std::string& protocol, std::vector<OpenPort>& found) {
  std::ifstream file("/proc/net/" + protocol);
  std::string line;
  std::getline(file, line);
  const bool tcp = protocol.starts_with("tcp");
  while (std::getline(file, line)) {
    std::istringstream words(line);
    // Of the words of a line, 1 is the local address, 3 the state and 9 the inode.
    std::vector<std::string> word(10);
    for (std::string& next : word) words >> next;
    const std::size_t colon = word[1].rfind(':');
    // The kernel's numbers of states: 0A is TCP_LISTEN, and 07 is TCP_CLOSE, which an unconnected
    // UDP socket has.
    if (!words || colon == std::string::npos || word[3] != (tcp ? "0A" : "07")) continue;
    unsigned port = 0;
    std::from_chars(&word[1][colon + 1], word[1].data() + word[1].size(), port, 16);
    found.push_back({.protocol = tcp ? "TCP" : "UDP",
                     .address = address_of(std::string_view(word[1]).substr(0, colon)),
                     .port = port,
                     .inode = word[9]});
  }
}

// The names in a folder of /proc; empty where the process has ended or belongs to another user.
std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  std::filesystem::directory_iterator at(folder, failed);
  while (!failed && at != std::filesystem::directory_iterator()) {
    names.push_back(at->path().filename());
    at.increment(failed);
  }
  return names;
}

// A process is recognised by the files that it has mapped: the libraries of Weft, or the drop-in
// libraries in their folder. An empty folder would match every library.
bool runs_on_weft(const std::filesystem::path& process, const std::string& folder) {
  std::ifstream maps(process / "maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find("/libweft") != std::string::npos) return true;
    if (!folder.empty() && line.find(folder + "/lib") != std::string::npos) return true;
  }
  return false;
}

// The programs of this user that run on Weft: by the inode of each of their sockets.
std::map<std::string, std::string> sockets_of_programs(const std::string& folder) {
  std::map<std::string, std::string> owners;
  for (const std::string& pid : names_in("/proc")) {
    const std::filesystem::path process = "/proc/" + pid;
    // /proc also has files and folders that are no processes.
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!runs_on_weft(process, folder)) continue;
    std::string name;
    std::ifstream comm(process / "comm");
    std::getline(comm, name);
    name = plain_name(name);
    for (const std::string& fd : names_in(process / "fd")) {
      std::error_code failed;
      const std::string target = std::filesystem::read_symlink(process / "fd" / fd, failed);
      if (!target.starts_with("socket:[")) continue;
      // The inode is between "socket:[" and "]". Where processes share a socket, the last one is
      // shown.
      owners[target.substr(8, target.size() - 9)] = fmt::format("{}, process {}", name, pid);
    }
  }
  return owners;
}

// A socket of IPv6 has addresses of IPv4 in this form (RFC 4291 §2.5.5.2).
std::string without_mapping(const std::string& address) {
  constexpr std::string_view mapped = "::ffff:";
  const bool is_mapped = address.starts_with(mapped) && address.find('.') != std::string::npos;
  return is_mapped ? address.substr(mapped.size()) : address;
}

std::string who_reaches(const std::string& bound) {
  const std::string address = without_mapping(bound);
  if (address == "0.0.0.0" || address == "::") return "every host that reaches this one";
  // All of 127.0.0.0/8 is loopback.
  if (address.starts_with("127.") || address == "::1") return "programs of this host only";
  return "every host that reaches this address";
}

}  // namespace

void check_open_ports(const std::string& folder, Findings& findings) {
  std::vector<OpenPort> open;
  for (const char* protocol : {"tcp", "tcp6", "udp", "udp6"}) read_open_ports(protocol, open);
  const auto owners = sockets_of_programs(folder);
  bool any = false;
  for (const OpenPort& port : open) {
    const auto owner = owners.find(port.inode);
    const bool in_range = port.port >= first_port && port.port <= last_port;
    // A port of another user's process has no owner here, and is shown if the device may have
    // opened it.
    if (owner == owners.end() && !in_range) continue;
    any = true;
    const bool ipv6 = port.address.find(':') != std::string::npos;
    findings.push_back(
        {"open port", Health::good,
         fmt::format("{} port {} at {} is open to {} ({}).", port.protocol, port.port,
                     ipv6 ? "[" + port.address + "]" : port.address, who_reaches(port.address),
                     owner == owners.end() ? "another program" : owner->second),
         ""});
  }
  if (!any) {
    findings.push_back({"open port", Health::good, "No program on Weft has a port open now.", ""});
  }
}

}  // namespace weft::cli
