#include "cli/top_source.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "cli/terminal.h"
#include "live/socket_name.h"

namespace weft::cli {
namespace {

// A report has about 1.5 KB for each queue pair.
constexpr std::size_t most_report_bytes = 256U << 20U;
constexpr unsigned accepting = 0x10000;  // __SO_ACCEPTCON, in the flags of /proc/net/unix

// With errno.
[[noreturn]] void throw_error(const char* what) {
  throw std::runtime_error(std::string(what) + ": " + std::generic_category().message(errno));
}

// The abstract names of this network namespace on which a process listens, as in unix(7), with the
// inodes of the sockets.
std::map<std::string, std::string> listening_names() {
  std::ifstream file("/proc/net/unix");
  if (!file) throw_error("/proc/net/unix cannot be read");
  std::map<std::string, std::string> names;
  std::string line;
  std::getline(file, line);  // the heading
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string skipped, flags, inode, name;
    words >> skipped >> skipped >> skipped >> flags >> skipped >> skipped >> inode >> name;
    const bool listens = (std::strtoul(flags.c_str(), nullptr, 16) & accepting) != 0;
    if (listens && name.starts_with("@" + std::string(live::socket_prefix))) {
      names[name.substr(1)] = inode;
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

std::string program_of(pid_t pid) {
  return plain_name(first_line("/proc/" + std::to_string(pid) + "/comm"));
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

// A report has four levels. The copies and the destruction of a deep value are recursive.
constexpr int most_levels = 16;

// Null for what is no report.
nlohmann::json parse_report(const std::string& text) {
  bool deep = false;
  const auto limited = [&deep](int depth, nlohmann::json::parse_event_t /*event*/,
                               nlohmann::json& /*value*/) {
    if (depth > most_levels) deep = true;
    return !deep;  // false: the value is left out
  };
  nlohmann::json report = nlohmann::json::parse(text, limited, false);
  return report.is_object() && !deep ? report : nlohmann::json();
}

// By SO_PEERCRED the kernel names who listens: another user may have taken any name. The number of
// the process is that of this process's namespace, and 0 where it has none there. The name of the
// socket has the number that the process knows itself by.
std::optional<pid_t> own_listener(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return std::nullopt;
  return credentials.uid == geteuid() ? std::optional(credentials.pid) : std::nullopt;
}

// For a socket that cannot be asked: whether it is one of the process that its name says, and the
// process is this user's. Another user may have taken the name.
bool is_own_process(pid_t pid, const std::string& inode) {
  const std::string folder = "/proc/" + std::to_string(pid);
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0 || status.st_uid != geteuid()) return false;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder + "/fd", error), end; !error && at != end;
       at.increment(error)) {
    std::error_code closed;
    if (std::filesystem::read_symlink(at->path(), closed) == "socket:[" + inode + "]") return true;
  }
  return false;
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
  const auto names = listening_names();
  const auto has_ended = [&](const auto& known) { return !names.contains(known.first); };
  std::erase_if(devices_, has_ended);
  std::erase_if(others_, [&](const std::string& name) { return !names.contains(name); });
  for (const auto& [name, inode] : names) {
    const auto pid = live::pid_of(name);
    if (!pid || others_.contains(name)) continue;
    const auto known = devices_.find(name);
    if (known == devices_.end() || !known->second.socket.valid()) connect(name, *pid, inode);
  }
}

// Does not block, because a stopped process accepts no connection, and its queue may be full
// (EAGAIN). The process is kept without a socket, and the next call tries it again.
void TopSource::connect(const std::string& name, pid_t named, const std::string& inode) {
  // A process is not disturbed where its name shows that it is not asked for.
  if (!is_asked_for(named) && is_own_process(named, inode)) {
    others_.insert(name);
    return;
  }
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // Without one, for example because no descriptor is left, the device would be left out.
  if (!socket.valid()) throw_error("no socket for a device");
  const live::SocketAddress address = live::address_of(name);
  if (::connect(socket.get(), address.generic(), address.bytes) != 0) {
    // With another error it has ended, or a sandbox forbids it.
    const bool full = errno == EAGAIN;
    if (full && is_own_process(named, inode)) keep(name, {.pid = named, .visible = true});
    return;
  }
  const auto listener = own_listener(socket.get());
  if (!listener) return;
  const bool visible = *listener != 0;
  keep(name, {.pid = visible ? *listener : named, .visible = visible, .socket = std::move(socket)});
}

bool TopSource::is_asked_for(pid_t pid) const {
  return pids_.empty() || std::ranges::find(pids_, pid) != pids_.end();
}

void TopSource::keep(const std::string& name, Device device) {
  if (is_asked_for(device.pid)) {
    devices_[name] = std::move(device);
  } else {
    others_.insert(name);
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
                   .program = device.visible ? program_of(device.pid) : "?",
                   .why = {},
                   .report = nullptr};
  if (!device.text.empty() && device.text.back() == '\0') {
    device.text.pop_back();
    result.report = parse_report(device.text);
    result.answered = result.report.is_object();
    device.text.clear();
    device.asked = false;
  }
  if (!result.answered) result.why = device.visible ? why_silent(device.pid) : "silent";
  return result;
}

}  // namespace weft::cli
