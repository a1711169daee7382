#include "cli/top_source.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "live/socket_name.h"

namespace weft::cli {
namespace {

// A report has about 1.5 KB for each queue pair.
constexpr std::size_t most_report_bytes = 256U << 20U;
constexpr unsigned accepting = 0x10000;  // __SO_ACCEPTCON, in the flags of /proc/net/unix

// The abstract names of this network namespace on which a process listens, as in unix(7).
std::set<std::string> listening_names() {
  std::ifstream file("/proc/net/unix");
  if (!file) throw std::runtime_error("/proc/net/unix cannot be read; is /proc mounted?");
  std::set<std::string> names;
  std::string line;
  std::getline(file, line);  // the heading
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string skipped, flags, name;
    words >> skipped >> skipped >> skipped >> flags >> skipped >> skipped >> skipped >> name;
    const bool listens = (std::strtoul(flags.c_str(), nullptr, 16) & accepting) != 0;
    if (listens && name.starts_with("@" + std::string(live::socket_prefix))) {
      names.insert(name.substr(1));
    }
  }
  return names;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The name may be anything that the process has chosen, and is shown on a terminal.
std::string program_of(pid_t pid) {
  std::string name = first_line("/proc/" + std::to_string(pid) + "/comm");
  std::ranges::replace_if(
      name, [](unsigned char c) { return c < ' ' || c >= 0x7F; }, '?');
  return name;
}

bool has_progress_thread(pid_t pid) {
  std::error_code error;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    if (first_line(task.path().string() + "/comm") == "weft-progress") return true;
  }
  return false;
}

// Why a process does not answer. A device is served by its progress thread, which starts with the
// first connection, or by the program's calls.
std::string why_silent(pid_t pid) {
  const std::string stat = first_line("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t end = stat.rfind(") ");
  const char state = end != std::string::npos && end + 2 < stat.size() ? stat[end + 2] : '?';
  if (state == 'T' || state == 't') return "stopped";
  return has_progress_thread(pid) ? "silent" : "idle";
}

// By SO_PEERCRED the kernel names who listens: another user may have taken any name. A process
// number of 0 is one of another namespace.
bool is_own(int socket, pid_t pid) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return false;
  return credentials.uid == geteuid() && (credentials.pid == pid || credentials.pid == 0);
}

}  // namespace

std::vector<TopAnswer> TopSource::ask(std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  find();
  for (auto& [name, device] : devices_) {
    if (!device.socket.valid() || device.asked) continue;
    device.asked = ::send(device.socket.get(), "?", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
    if (!device.asked) device.socket.reset();
  }
  collect(until);
  std::vector<TopAnswer> answers;
  for (auto& [name, device] : devices_) answers.push_back(answer(name, device));
  return answers;
}

void TopSource::find() {
  const std::set<std::string> names = listening_names();
  std::erase_if(devices_, [&](const auto& known) { return !names.contains(known.first); });
  for (const std::string& name : names) {
    const auto pid = live::pid_of(name);
    if (!pid || (!pids_.empty() && std::ranges::find(pids_, *pid) == pids_.end())) continue;
    const auto known = devices_.find(name);
    if (known == devices_.end() || !known->second.socket.valid()) connect(name, *pid);
  }
}

// Does not block, because a stopped process accepts no connection, and its queue may be full
// (EAGAIN). The process is kept without a socket, and the next call tries it again.
void TopSource::connect(const std::string& name, pid_t pid) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return;
  const live::SocketAddress address = live::address_of(name);
  if (::connect(socket.get(), address.generic(), address.bytes) != 0) {
    if (errno != EAGAIN) return;  // it has ended, or a sandbox forbids it
    devices_[name] = {.pid = pid, .socket = {}, .text = {}};
    return;
  }
  if (is_own(socket.get(), pid)) {
    devices_[name] = {.pid = pid, .socket = std::move(socket), .text = {}};
  }
}

// Reads until all have answered, or the time is over.
void TopSource::collect(std::chrono::steady_clock::time_point until) {
  using std::chrono::milliseconds;
  while (true) {
    std::vector<pollfd> entries;
    std::vector<Device*> waiting;
    for (auto& [name, device] : devices_) {
      const bool complete = !device.text.empty() && device.text.back() == '\0';
      if (!device.asked || complete || !device.socket.valid()) continue;
      entries.push_back({device.socket.get(), POLLIN, 0});
      waiting.push_back(&device);
    }
    const auto left =
        std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
    if (entries.empty() || left.count() <= 0) return;
    if (::poll(entries.data(), entries.size(), static_cast<int>(left.count())) < 0) continue;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents != 0 && !read(*waiting[i])) waiting[i]->socket.reset();
    }
  }
}

// False: the process has ended, or sends too much.
bool TopSource::read(Device& device) {
  std::array<char, 65536> bytes;
  const ssize_t got = ::recv(device.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  device.text.append(bytes.data(), static_cast<std::size_t>(got));
  return got > 0 && device.text.size() <= most_report_bytes;
}

TopAnswer TopSource::answer(const std::string& name, Device& device) {
  TopAnswer result{.pid = device.pid,
                   .socket = name,
                   .program = program_of(device.pid),
                   .why = {},
                   .report = nullptr};
  if (!device.text.empty() && device.text.back() == '\0') {
    device.text.pop_back();
    result.report = nlohmann::json::parse(device.text, nullptr, false);
    result.answered = result.report.is_object();
    device.text.clear();
    device.asked = false;
  }
  if (!result.answered) result.why = why_silent(device.pid);
  return result;
}

}  // namespace weft::cli
