#include "cli/top.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/descriptor.h"
#include "cli/descriptor_limit.h"
#include "cli/terminal.h"
#include "cli/top_rates.h"
#include "cli/top_source.h"
#include "cli/top_view.h"

namespace weft::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A process answers within milliseconds, unless it is stopped or a lock of its device is held.
constexpr milliseconds longest_answer{1000};
constexpr int status_of_signals = 128;  // as shells have it

// A terminal without line input and echo, from enter() to leave(). Does nothing where standard
// input is no terminal, or where keys are not wanted.
class SingleKeys {
 public:
  explicit SingleKeys(bool wanted) : wanted_(wanted && isatty(STDIN_FILENO) != 0) { enter(); }
  ~SingleKeys() { leave(); }
  SingleKeys(const SingleKeys&) = delete;
  SingleKeys& operator=(const SingleKeys&) = delete;

  // May be called again: a shell sets the terminal as it likes while this process is stopped. In
  // the background a change of the terminal would stop the process (SIGTTOU), so there is none.
  void enter() {
    if (!wanted_ || !in_foreground()) return;
    if (!before_ && tcgetattr(STDIN_FILENO, &before_.emplace()) != 0) before_.reset();
    if (!before_) return;
    termios changed = *before_;
    changed.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &changed);
  }
  // A shell may have put this process into the background meanwhile, and must not wait for it:
  // SIGTTOU is blocked.
  void leave() {
    if (!before_) return;
    sigset_t stopping;
    sigset_t before;
    sigemptyset(&stopping);
    sigaddset(&stopping, SIGTTOU);
    sigprocmask(SIG_BLOCK, &stopping, &before);
    tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    before_.reset();
  }
  [[nodiscard]] bool valid() const { return before_.has_value(); }

 private:
  // A terminal that does not control this process cannot stop it.
  [[nodiscard]] static bool in_foreground() {
    const pid_t group = tcgetpgrp(STDIN_FILENO);
    return group < 0 || group == getpgrp();
  }

  bool wanted_;
  std::optional<termios> before_;
};

// Signals that end, stop or continue the command become readable, so that the terminal is restored
// before, and changed again.
Descriptor readable_signals() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT}) {
    sigaddset(&taken, signal);
  }
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  return Descriptor(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Does what the signal does to a process that does not handle it.
void act_as_default(int signal) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  raise(signal);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  sigprocmask(SIG_BLOCK, &one, nullptr);
}

// The rows that fit, in the width of the terminal.
std::string cut_to_terminal(const std::string& text) {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return text;
  std::string shown;
  std::size_t begin = 0;
  for (int row = 0; row + 1 < size.ws_row && begin < text.size(); ++row) {
    const std::size_t end = text.find('\n', begin);
    shown += text.substr(begin, std::min<std::size_t>(end - begin, size.ws_col)) + "\n";
    begin = end + 1;
  }
  return shown;
}

class Top {
 public:
  explicit Top(const TopOptions& options)
      : options_(options),
        source_(options.pids),
        sort_(options.sort),
        redraws_(!options.once && !options.json && isatty(STDOUT_FILENO)),
        keys_(redraws_) {}

  int run();

 private:
  std::vector<TopDevice> look();
  void show(std::vector<TopDevice> devices);
  int show_none();
  bool pause();
  bool take_signal();
  bool take_key();

  TopOptions options_;
  TopSource source_;
  std::string sort_;
  std::map<std::string, nlohmann::json> before_;  // the last report of each socket
  bool redraws_;  // each table takes the place of the one before, and keys change it
  Descriptor signals_ = readable_signals();  // before the terminal is changed
  SingleKeys keys_;
  int ended_by_ = 0;  // a signal
};

// The rates since the last look. The report of a device whose answer is late is kept for the next
// one.
std::vector<TopDevice> Top::look() {
  std::vector<TopDevice> devices;
  std::map<std::string, nlohmann::json> reports;
  for (TopAnswer& answer : source_.ask(longest_answer)) {
    nlohmann::json& before = before_[answer.socket];
    devices.push_back(rates(before, answer));
    reports[answer.socket] = std::move(answer.answered ? answer.report : before);
  }
  before_ = std::move(reports);
  return devices;
}

void Top::show(std::vector<TopDevice> devices) {
  sort_devices(devices, sort_);
  if (options_.json) {
    fmt::print("{}", json(devices));
  } else if (redraws_) {
    const std::string hint =
        keys_.valid() ? "; q quits, s sorts by another, p shows queue pairs" : "";
    fmt::print("\033[H\033[J{}",
               cut_to_terminal(fmt::format("{} devices, by {}{}\n{}", devices.size(), sort_, hint,
                                           table(devices, options_.queue_pairs))));
  } else {
    fmt::print("{}", table(devices, options_.queue_pairs));
  }
  std::fflush(stdout);
}

// For --once, where there is nothing to show. A process that is named is expected to have a device.
int Top::show_none() {
  if (options_.json) show({});
  if (options_.pids.empty()) {
    if (!options_.json) print_notice("no process of this user has a Weft device");
    return 0;
  }
  print_error(fmt::format(
      "top: {} {}: no Weft device of this user there; `weft top --once` lists all",
      options_.pids.size() == 1 ? "process" : "processes", fmt::join(options_.pids, ", ")));
  return 1;
}

// Until the next look. False: the user wants to end.
bool Top::pause() {
  const auto until = steady_clock::now() + std::chrono::duration_cast<milliseconds>(
                                               std::chrono::duration<double>(options_.interval_s));
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
    if (left.count() <= 0) return true;
    std::array<pollfd, 2> entries{
        {{signals_.get(), POLLIN, 0}, {keys_.valid() ? STDIN_FILENO : -1, POLLIN, 0}}};
    if (::poll(entries.data(), entries.size(), static_cast<int>(left.count())) < 0) continue;
    if (entries[0].revents != 0 && !take_signal()) return false;
    if (entries[1].revents != 0) return take_key();
  }
}

// False: it ends the command.
bool Top::take_signal() {
  signalfd_siginfo taken{};
  if (::read(signals_.get(), &taken, sizeof taken) != sizeof taken) return true;
  const auto signal = static_cast<int>(taken.ssi_signo);
  if (signal == SIGCONT) {
    keys_.enter();
  } else if (signal == SIGTSTP || signal == SIGQUIT) {
    keys_.leave();
    act_as_default(signal);
    keys_.enter();  // it was continued, or there is no shell that could continue it
  } else {
    ended_by_ = signal;
    return false;
  }
  return true;
}

bool Top::take_key() {
  char key = 0;
  if (::read(STDIN_FILENO, &key, 1) != 1 || key == 'q') return false;
  if (key == 'p') options_.queue_pairs = !options_.queue_pairs;
  if (key == 's') {
    const auto& keys = top_sort_keys();
    const auto now = std::ranges::find(keys, sort_);
    sort_ = now == keys.end() || now + 1 == keys.end() ? keys.front() : *(now + 1);
  }
  return true;
}

// The first look shows no rates, so that --once looks twice. A signal is the usual end of the
// command without --once; with it, there is no result.
int Top::run() {
  std::vector<TopDevice> devices = look();
  if (options_.once && devices.empty()) return show_none();
  if (!options_.once && !options_.json) show(std::move(devices));
  while (pause()) {
    show(look());
    if (options_.once || std::ferror(stdout) != 0) return 0;
  }
  return options_.once && ended_by_ != 0 ? status_of_signals + ended_by_ : 0;
}

}  // namespace

int top(const TopOptions& options) try {
  raise_descriptor_limit();  // one for each device
  return Top(options).run();
} catch (const std::runtime_error& error) {
  if (std::ferror(stdout) != 0) throw;  // main() reports a failed output
  print_error(std::string("top: ") + error.what());
  return 1;
}

}  // namespace weft::cli
