#include "cli/selftest.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "cli/child.h"
#include "cli/libraries.h"
#include "cli/terminal.h"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Limits a test that takes milliseconds if it works.
constexpr std::chrono::seconds timeout{20};

struct Step {
  std::string name;
  bool right = false;
  std::string rest;  // nanoseconds, or the reason
};

// Parses a line "NAME ok NANOSECONDS" or "NAME failed REASON"; nothing for any other line.
std::optional<Step> step_of(const std::string& line) {
  std::istringstream words(line);
  Step step;
  std::string outcome;
  words >> step.name >> outcome;
  std::getline(words >> std::ws, step.rest);
  step.right = outcome == "ok";
  const bool known = outcome == "ok" || outcome == "failed";
  return known ? std::optional(step) : std::nullopt;
}

// Why a child has printed no more. `said`: its last line that is no result. The dynamic loader and
// the device print lines that are harmless, and others that name the reason of the end.
std::string why_ended(const Child& child, const std::string& said) {
  const std::string how =
      child.late() ? fmt::format("no reply within {} s", timeout.count()) : "it ended early";
  return said.empty() ? how : fmt::format("{}; its last message: {}", how, said);
}

std::string duration(const std::string& nanoseconds) {
  double value = 0;
  std::from_chars(nanoseconds.data(), nanoseconds.data() + nanoseconds.size(), value);
  return value < 1e6 ? fmt::format("{:.0f} us", value / 1e3)
                     : fmt::format("{:.1f} ms", value / 1e6);
}

// What a run of the client has shown.
struct Outcome {
  std::string done;   // the steps that succeeded, as text
  std::string wrong;  // why a step failed; empty if none has
  // As WEFT_VERBOSE prints them:
  std::string carrier;  // "TCP, because ..." or "same host, without TCP" and what follows
  std::string heap;     // "shared heap: ..." or "no shared heap, because ..."
};

// The text behind the number in "weft: queue pair 0x123456: TCP, because ...", if it is that line.
std::optional<std::string> carrier_in(const std::string& line) {
  if (!line.starts_with("weft: queue pair ")) return std::nullopt;
  constexpr std::string_view separator = ": ";
  return line.substr(line.find(separator, std::strlen("weft: ")) + separator.size());
}

// The words of a line about the shared heap of the program; nothing for another line.
std::optional<std::string> heap_in(const std::string& line) {
  constexpr std::string_view prefix = "weft: ";
  for (const char* begin : {"weft: shared heap", "weft: no shared heap"}) {
    if (line.starts_with(begin)) return line.substr(prefix.size());
  }
  return std::nullopt;
}

// One deadline limits the whole run: a client that prints slowly gets no more time by that.
Outcome follow(Child& child) {
  Outcome outcome;
  std::string& done = outcome.done;
  const auto deadline = Clock::now() + timeout;
  // The client then only disconnects. What it prints after that does not matter.
  const char* const last = "read";
  std::string said;
  while (const auto line = child.line(deadline)) {
    // Lines that the device prints about its connection come between those of the steps.
    if (const auto carrier = carrier_in(*line)) {
      outcome.carrier = *carrier;
      continue;
    }
    if (const auto heap = heap_in(*line)) {
      outcome.heap = *heap;
      continue;
    }
    const auto step = step_of(*line);
    if (!step) {
      said = *line;
      continue;
    }
    if (!step->right) {
      outcome.wrong = fmt::format("{}: {}", step->name, step->rest);
      return outcome;
    }
    done += fmt::format("{}{} {}", done.empty() ? "" : ", ", step->name, duration(step->rest));
    if (step->name == last) return outcome;
  }
  outcome.wrong = why_ended(child, said);
  return outcome;
}

// The port of a server, or why it has none.
struct Listening {
  std::string port;
  std::string wrong;
};

Listening await_listening(Child& server) {
  constexpr std::string_view expected = "listening ";
  const auto deadline = Clock::now() + timeout;
  std::string said;
  while (const auto line = server.line(deadline)) {
    if (line->starts_with(expected)) return {line->substr(expected.size()), {}};
    said = *line;
  }
  return {{}, why_ended(server, said)};
}

// Runs the client of the self-test and reports its result. Returns what it has shown.
Outcome ask(const std::filesystem::path& folder, const std::string& host, const std::string& port,
            const std::string& fix, Findings& findings) {
  // The child ends with this function, also if its client still waits.
  Child client({folder / "selftest", "ask", host, port});
  const Outcome outcome = follow(client);
  const auto& [done, wrong, carrier, heap] = outcome;
  const std::string where = fmt::format("{} port {}", host, port);
  if (wrong.empty()) {
    findings.push_back({"self-test", Health::good, fmt::format("With {}: {}.", where, done), ""});
  } else {
    findings.push_back(
        {"self-test", Health::problem,
         fmt::format("With {}: {}{}{}.", where, done, done.empty() ? "" : "; then ", wrong), fix});
  }
  return outcome;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// What to do about connections whose payload takes two copies because the kernel keeps processes
// apart.
std::string remedy(const std::string& carrier) {
  // These words are a part of the sentence that the device prints.
  if (carrier.find("read each other's memory") == std::string::npos) return "";
  // 0 is no restriction by Yama. Without the file the kernel has no Yama, and something else
  // refuses.
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  // The kernel keeps 3 until it is booted again.
  if (scope == "3") return "Boot with kernel.yama.ptrace_scope=0; the value 3 cannot be changed.";
  // Each of two processes has one peer then; a server has several.
  if (scope == "1") return "weft run --ptracer any, or sysctl kernel.yama.ptrace_scope=0";
  if (!scope.empty() && scope != "0") return "sysctl kernel.yama.ptrace_scope=0";
  return "In a container, allow the system calls process_vm_readv and process_vm_writev.";
}

void report_carrier(const std::string& carrier, Findings& findings) {
  if (carrier.empty()) return;
  const std::size_t reason = carrier.find("because ");
  if (carrier.starts_with("TCP")) {
    findings.push_back(
        {"same host", Health::note,
         fmt::format("Connections between two processes of this user use {}.", carrier), ""});
  } else if (reason == std::string::npos) {
    findings.push_back(
        {"same host", Health::good,
         "Connections between two processes of this user leave TCP: the processes copy between "
         "themselves.",
         ""});
  } else {
    findings.push_back(
        {"same host", Health::note,
         fmt::format("Connections between two processes of this user leave TCP, but what they "
                     "write to each other's memory takes two copies, {}.",
                     carrier.substr(reason)),
         remedy(carrier)});
  }
}

// `heap`: empty where connections cannot leave TCP, so that it would be of no use.
void report_heap(const std::string& heap, Findings& findings) {
  if (heap.empty()) return;
  const std::size_t reason = heap.find("because ");
  findings.push_back(
      {"shared heap", reason == std::string::npos ? Health::good : Health::note,
       reason == std::string::npos
           ? "Page-aligned memory of programs under `weft run` is accessed by their peers on this "
             "host without system calls."
           : fmt::format("What programs write to each other's memory costs a system call each, "
                         "because the shared heap is off: {}.",
                         heap.substr(reason + std::strlen("because "))),
       ""});
}

// What programs can do with the device as it looks, and which personality others need. `words` are
// the name of the personality and the LID of the port.
void report_personality(const std::string& words, Findings& findings) {
  const std::size_t blank = words.find(' ');
  const std::string name = words.substr(0, blank);
  std::string sentence =
      "The device is seen as RoCE, for programs that connect by GID and queue pair number or by "
      "rdma_cm. Those that know LIDs only need `weft run --personality ib`.";
  if (name == "iwarp") {
    sentence =
        "The device is seen as iWARP, for programs that connect by rdma_cm. Those that connect by "
        "GID and queue pair number need `weft run --personality roce`, those that know LIDs only "
        "`weft run --personality ib`.";
  }
  if (name == "ib") {
    sentence = fmt::format(
        "The device is seen as InfiniBand with the LID {}, for programs that connect by LID or GID "
        "and queue pair number or by rdma_cm. A LID reaches this host and its subnet.",
        words.substr(blank + 1));
  }
  findings.push_back({"personality", Health::good, sentence, ""});
}

}  // namespace

void show_device(const std::filesystem::path& folder, Findings& findings) {
  Child program({folder / "selftest", "gids"});
  const auto deadline = Clock::now() + timeout;
  std::string device;
  std::string personality;
  std::vector<std::string> gids;
  // The last line before the name of the device is the reason of a failure.
  std::string wrong = "it printed nothing";
  while (const auto line = program.line(deadline)) {
    if (line->starts_with("device ")) {
      device = line->substr(std::strlen("device "));
    } else if (line->starts_with("personality ")) {
      personality = line->substr(std::strlen("personality "));
    } else if (line->starts_with("gid ")) {
      gids.push_back(line->substr(std::strlen("gid ")));
    } else if (device.empty()) {
      wrong = *line;
    }
  }
  if (device.empty()) {
    findings.push_back({"device", Health::problem,
                        fmt::format("The embedded device cannot be opened: {}.", wrong),
                        "Build or install Weft again; if that does not help, report a bug."});
    return;
  }
  findings.push_back(
      {"device", Health::good,
       fmt::format("The embedded device is {}, with the GIDs {}.", device, fmt::join(gids, ", ")),
       ""});
  report_personality(personality, findings);
}

void try_device(const std::filesystem::path& folder, Findings& findings) {
  // A free port, which a line names. So several runs of this command do not disturb each other.
  Child server({folder / "selftest", "serve", "127.0.0.1", "0"});
  const Listening listening = await_listening(server);
  if (listening.port.empty()) {
    findings.push_back({"self-test", Health::problem,
                        fmt::format("A server on 127.0.0.1 does not start: {}.", listening.wrong),
                        "Look for a firewall or sandbox that forbids listening on TCP ports."});
    return;
  }
  constexpr const char* heap = "libweft-shared-heap.so";
  if (has_library(folder, heap)) preload_before_allocators(folder, heap);
  const Outcome outcome =
      ask(folder, "127.0.0.1", listening.port,
          "Look for a firewall or sandbox that forbids TCP over loopback.", findings);
  if (!outcome.wrong.empty()) return;
  report_carrier(outcome.carrier, findings);
  report_heap(outcome.heap, findings);
}

void try_peer(const std::filesystem::path& folder, const std::string& host, std::uint16_t port,
              Findings& findings) {
  (void)ask(
      folder, host, fmt::format("{}", port),
      fmt::format(
          "Run `weft doctor --serve` there, and let the firewalls between pass TCP port {} and the "
          "ports of your program.",
          port),
      findings);
  // perftest counts credits where its own device is an iWARP device, and both sides must.
  for (Finding& finding : findings) {
    if (finding.subject != "personality" || finding.sentence.find("RoCE") == std::string::npos) {
      continue;
    }
    finding.sentence +=
        " Towards an iWARP adapter or the kernel's siw, perftest's ib_send_bw needs `weft run "
        "--personality iwarp`.";
  }
}

int serve_peers(const std::filesystem::path& folder, std::uint16_t port) {
  const std::string program = folder / "selftest";
  const std::string number = fmt::format("{}", port);
  // Replaces this process, so that Ctrl-C and signals of a service manager reach the server itself.
  execl(program.c_str(), "selftest", "serve", "any", number.c_str(), nullptr);
  print_error(fmt::format("cannot start {}: {}", program, std::strerror(errno)));
  return 1;
}

}  // namespace weft::cli
