#include "provider/environment.h"

#include <arpa/inet.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "device/settings.h"
#include "provider/peer_limits.h"

namespace weft::provider {
namespace {

using device::Settings;

bool read_switch(std::string_view value, bool& target) {
  if (value != "0" && value != "1") return false;
  target = value == "1";
  return true;
}

// A scope, as in fe80::1%eth0, is not checked here.
bool read_address(std::string_view value, Settings& settings) {
  const std::string text(value.substr(0, value.find('%')));
  std::array<unsigned char, 16> bytes{};
  if (inet_pton(AF_INET, text.c_str(), bytes.data()) != 1 &&
      inet_pton(AF_INET6, text.c_str(), bytes.data()) != 1) {
    return false;
  }
  settings.address = value;
  return true;
}

// Characters behind the number, and numbers of more than 16 bits, are errors.
bool read_port_offset(std::string_view value, Settings& settings) {
  std::uint16_t offset = 0;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), offset);
  if (failed != std::errc() || end != value.data() + value.size()) return false;
  settings.port_offset = offset;
  return true;
}

bool read_priority(std::string_view value, Settings& settings) {
  int nice = 0;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), nice);
  if (failed != std::errc() || end != value.data() + value.size()) return false;
  if (nice < device::first_nice_value || nice > device::last_nice_value) return false;
  settings.progress.priority = nice;
  return true;
}

bool is_exit_status(std::string_view value, Settings& /*settings*/) {
  constexpr int most = 255;
  int status = -1;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), status);
  return failed == std::errc() && end == value.data() + value.size() && status >= 0 &&
         status <= most;
}

template <typename Choice>
using Choices = std::initializer_list<std::pair<std::string_view, Choice>>;

// False: the value is none of the choices.
template <typename Choice>
bool read_choice(std::string_view value, Choice& target, Choices<Choice> choices) {
  for (const auto& [name, choice] : choices) {
    if (name != value) continue;
    target = choice;
    return true;
  }
  return false;
}

bool read_progress(std::string_view value, Settings& settings) {
  using enum device::ProgressMode;
  return read_choice(value, settings.progress.mode,
                     {{"auto", automatic}, {"thread", thread}, {"manual", manual}});
}

bool read_same_host(std::string_view value, Settings& settings) {
  using enum device::SameHost;
  return read_choice(
      value, settings.same_host,
      {{"auto", automatic}, {"off", off}, {"require", required}, {"staged", staged}});
}

bool read_ptracer(std::string_view value, Settings& settings) {
  using enum device::PtracerMode;
  return read_choice(value, settings.reach.ptracer, {{"peer", peer}, {"any", any}, {"off", off}});
}

bool read_shared_heap(std::string_view value, Settings& settings) {
  using enum device::SharedHeapMode;
  return read_choice(value, settings.shared_heap.mode,
                     {{"off", off}, {"aligned", aligned}, {"all", all}});
}

bool read_shared_heap_limit(std::string_view value, Settings& settings) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  std::size_t limit = 0;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), limit);
  if (failed != std::errc() || end != value.data() + value.size()) return false;
  if (limit == 0 || limit > SIZE_MAX / mib) return false;
  settings.shared_heap.limit_bytes = limit * mib;
  return true;
}

bool read_personality(std::string_view value, Settings& settings) {
  using enum device::Personality;
  return read_choice(value, settings.personality, {{"roce", roce}, {"iwarp", iwarp}, {"ib", ib}});
}

bool read_gids(std::string_view value, Settings& settings) {
  using enum device::GidTable;
  return read_choice(value, settings.gids, {{"one", one}, {"all", all}});
}

bool read_faults(std::string_view value, Settings& settings) {
  auto rules = faults::parse(value);
  if (!rules) return false;
  settings.faults = std::move(*rules);
  return true;
}

bool read_adapter(std::string_view value, Settings& settings) {
  const auto limits = faults::parse_adapter(value);
  if (!limits) return false;
  settings.adapter = *limits;
  return true;
}

bool read_link(std::string_view value, Settings& settings) {
  const auto link = faults::parse_link(value);
  if (!link) return false;
  settings.link = *link;
  return true;
}

// Likewise.
std::string explain_link(std::string_view value) {
  return faults::parse_link(value).error();
}

// Called only for a value that read_adapter() has refused, as explain_faults() is.
std::string explain_adapter(std::string_view value) {
  return faults::parse_adapter(value).error();
}

bool read_check(std::string_view value, Settings& settings) {
  settings.reach.checked = value == "1" || value == "fatal";
  return settings.reach.checked || value == "0";
}

bool read_limits(std::string_view value, Settings& settings) {
  return read_peer_limits(value, settings).empty();
}

std::string explain_limits(std::string_view value) {
  Settings unused;
  return read_peer_limits(value, unused);
}

// Called only for a value that read_faults() has refused, so there is an error to return.
std::string explain_faults(std::string_view value) {
  return faults::parse(value).error();
}

constexpr std::string_view on_or_off = "0 or 1";

// In the order of `weft help environment`. Variables that are not settings of the device are only
// checked here.
constexpr std::array table{
    Variable{"WEFT_ADAPTER", "none", "a list of `weft help faults`",
             "A smaller adapter, such as max_qp=8,max_inline=0,atomics=0: the device shows and "
             "grants no more than that.",
             read_adapter, explain_adapter},
    Variable{"WEFT_ADDR", "none", "a numeric IP address of this host",
             "The device's only address, and so the only one in its GID table.", read_address},
    Variable{"WEFT_ACK", "1", on_or_off,
             "1: a send or write completes when the peer's device has placed it. 0: it completes "
             "when TCP has taken it.",
             [](std::string_view value, Settings& settings) {
               return read_switch(value, settings.acknowledge);
             }},
    Variable{"WEFT_BACKEND", "embedded", "embedded, system or auto",
             "For programs written with the C++ library. embedded: the device in the program. "
             "system: rdma-core's devices. auto: one of those with an active port, else the "
             "embedded one; reports the choice.",
             [](std::string_view value, Settings&) {
               return value == "embedded" || value == "system" || value == "auto";
             }},
    Variable{
        "WEFT_CAPTURE", "none", "the path of a file",
        "Writes what the device sends and receives to this pcapng file, readable by Wireshark. "
        "All connections then use TCP (see WEFT_SAME_HOST). A second process at the same time "
        "writes FILE.PID.",
        [](std::string_view value, Settings& settings) {
          settings.capture_path = value;
          return true;
        }},
    Variable{"WEFT_CHECK", "0", "0, 1 or fatal",
             "1: reports on stderr where a program breaks the rules of verbs; `weft help check` "
             "lists them. fatal: ends the program at the first report. For programs that run on "
             "the drop-in libraries.",
             read_check},
    Variable{"WEFT_CHECK_REPORT", "none", "the path of a file",
             "With WEFT_CHECK: writes the reports to this file as well, as JSON. A second process "
             "at the same time writes FILE.PID.",
             [](std::string_view, Settings&) { return true; }},
    Variable{"WEFT_CHECK_STATUS", "the program's own, and 66 with fatal", "a number from 0 to 255",
             "With WEFT_CHECK: the exit status of a program about which there are reports.",
             is_exit_status},
    Variable{"WEFT_CHECK_SUPPRESSIONS", "none", "the path of a file",
             "With WEFT_CHECK: what is not to be reported, as `weft help check` describes it.",
             [](std::string_view, Settings&) { return true; }},
    Variable{"WEFT_CRC", "1", on_or_off,
             "1: asks for a CRC on every FPDU. 0: does not ask for it; CRCs are still used if the "
             "peer asks for them.",
             [](std::string_view value, Settings& settings) {
               return read_switch(value, settings.crc);
             }},
    Variable{"WEFT_CRC_STRICT", "1", on_or_off,
             "1: checks the CRC before data are written to the application's memory, which costs a "
             "copy.",
             [](std::string_view value, Settings& settings) {
               return read_switch(value, settings.strict_crc);
             }},
    Variable{"WEFT_FAULT", "none", "rules of `weft help faults`",
             "Makes calls, requests and the device fail on purpose, to test how a program deals "
             "with it.",
             read_faults, explain_faults},
    Variable{
        "WEFT_GIDS", "one address with roce, all with iwarp", "one or all",
        "Which addresses of this host are GIDs of the device. one: the first IPv4 address that "
        "is not a loopback address, or else 127.0.0.1, as one row. By default roce has two rows of "
        "it, as RoCE v1 and v2; with all, two rows of each address. ib always has one.",
        read_gids},
    Variable{"WEFT_LIMITS", "none", "NAME=VALUE,NAME=VALUE",
             "What strangers and peers can make the device hold, and for how long: half_open= and "
             "refused= (4 to 65536 connections), first_byte=, handshake= and unanswered= (1ms to "
             "3600s), hold_bytes= (up to 1GiB for each connection), such as "
             "half_open=64,first_byte=1s.",
             read_limits, explain_limits},
    Variable{"WEFT_LINK", "none", "a list of `weft help faults`",
             "A slower network, such as latency=50us,rate=10gbit: delays what the device sends and "
             "receives. All connections then use TCP (see WEFT_SAME_HOST).",
             read_link, explain_link},
    Variable{
        "WEFT_OTHER_USERS", "0", on_or_off,
        "1: a queue pair that is connected by GID and number may have its peer in a process of "
        "another user of the same host.",
        [](std::string_view value, Settings& settings) {
          return read_switch(value, settings.other_users);
        }},
    Variable{"WEFT_OWN_MEMORY", "1", on_or_off,
             "1: two queue pairs of one process that are connected copy from the memory of one to "
             "that of the other. 0: they copy as those of two processes do, for measurements.",
             [](std::string_view value, Settings& settings) {
               return read_switch(value, settings.reach.own_memory);
             }},
    Variable{
        "WEFT_PERSONALITY", "roce", "roce, iwarp or ib",
        "What the device looks like. roce: an InfiniBand adapter on Ethernet, connected by "
        "GID and queue pair number or by rdma_cm. iwarp: an iWARP adapter, connected by "
        "rdma_cm. ib: an InfiniBand adapter on InfiniBand, for programs that know LIDs only: "
        "the LID is the low 16 bits of the IPv4 address, and reaches the same subnet. The wire "
        "is iWARP in all.",
        read_personality},
    Variable{"WEFT_PORT_OFFSET", "0", "a number from 0 to 65535",
             "Added to every rdma_cm port, for a program that also uses the TCP port of the same "
             "number. Both sides need the same offset.",
             read_port_offset},
    Variable{"WEFT_PRIORITY", "that of the program", "a number from -20 to 19",
             "The nice value of the thread that drives the device; -20 runs before all others. It "
             "helps programs that watch memory which is written over TCP, on processors that are "
             "all busy. Below that of the program it needs a permission (see `weft doctor`).",
             read_priority},
    Variable{
        "WEFT_PROGRESS", "auto", "auto, thread or manual",
        "Who drives the device. auto: a thread, and any thread that polls a completion queue. "
        "thread: the thread alone. manual: only threads that poll or wait. Byte streams bring a "
        "thread of their own; a message loop must run, and another loop cannot wait for it.",
        read_progress},
    Variable{"WEFT_PTRACER", "peer", "peer, any or off",
             "Where the sysctl kernel.yama.ptrace_scope is 1, as on Ubuntu: which other processes "
             "of this user may reach the memory of this one, as connections within the host need. "
             "peer: the first that connects, until it ends. any: all. off: those that the program "
             "itself has named (PR_SET_PTRACER). Connections to others stay on TCP.",
             read_ptracer},
    Variable{"WEFT_QUIET", "0", on_or_off,
             "1: does not print at the start which device serves the program. Errors are printed.",
             [](std::string_view value, Settings&) {
               bool quiet = false;
               return read_switch(value, quiet);
             }},
    Variable{
        "WEFT_REQUIRE", "none", "embedded or system",
        "For programs written with the C++ library: they fail if the other backend would be "
        "used.",
        [](std::string_view value, Settings&) { return value == "embedded" || value == "system"; }},
    Variable{
        "WEFT_RESPONDER_FIRST", "0", on_or_off,
        "1: the side that has accepted a connection of rdma_cm sends after a tenth of a second "
        "even if the other side has asked for no peer-to-peer mode and has sent nothing. The "
        "standard forbids it, but the kernel's siw accepts it.",
        [](std::string_view value, Settings& settings) {
          return read_switch(value, settings.responder_first);
        }},
    Variable{
        "WEFT_SOCKETS", "rdma", "rdma, always or fallback",
        "With `weft run --sockets`: what to do about a peer that speaks plain TCP. rdma: fail. "
        "fallback: connect without RDMA, and print a notice. With `rdma` and `fallback`, brief "
        "connections within this host are left to the kernel's TCP; with `always` none is.",
        [](std::string_view value, Settings&) {
          return value == "rdma" || value == "always" || value == "fallback";
        }},
    Variable{"WEFT_SAME_HOST", "auto", "auto, off, require or staged",
             "Connections to a process of the same user on the same host. auto: they leave TCP and "
             "copy between the processes; where the kernel does not permit that, they copy through "
             "shared memory; where neither is possible, they stay on TCP. off: they use TCP. "
             "require: connections that would stay on TCP fail. staged: as auto, but as if the "
             "kernel did not permit it, for tests and diagnosis.",
             read_same_host},
    Variable{"WEFT_SHARED_HEAP", "aligned", "off, aligned or all",
             "With `weft run`: which memory of a program is allocated where processes of the same "
             "user on this host can map it, so that they access it without a system call. aligned: "
             "page-aligned memory, as programs allocate for RDMA. all: also blocks of 64 KiB and "
             "more. Only what is allocated after the program has opened the device.",
             read_shared_heap},
    Variable{"WEFT_SHARED_HEAP_LIMIT", "256", "a number of MiB",
             "How much memory WEFT_SHARED_HEAP concerns at most. It is copied when the program "
             "calls fork().",
             read_shared_heap_limit},
    Variable{
        "WEFT_STRICT", "0", on_or_off,
        "1: behaves like adapters where the device could do better, for tests of programs. With "
        "roce, private data of rdma_cm is padded with zeros, and a disconnection by the peer "
        "flushes nothing before rdma_disconnect is called. A request has at most 6 pieces.",
        [](std::string_view value, Settings& settings) {
          return read_switch(value, settings.strict);
        }},
    Variable{"WEFT_STATS", "none", "the path of a file",
             "Writes the counters of the device to this file when the program exits and at "
             "SIGUSR2, unless the program handles that signal itself: as text for Prometheus if "
             "the name ends in .prom, otherwise as JSON. A second process at the same time writes "
             "FILE.PID, or FILE.PID.prom.",
             [](std::string_view value, Settings& settings) {
               settings.stats_path = value;
               return true;
             }},
    Variable{"WEFT_TRACE", "none", "the path of a file",
             "Writes what becomes of each work request to this file, for ui.perfetto.dev and "
             "chrome://tracing, see `weft help trace`. A second process at the same time writes "
             "FILE.PID.",
             [](std::string_view value, Settings& settings) {
               settings.trace_path = value;
               return true;
             }},
    Variable{"WEFT_VERBOSE", "0", on_or_off,
             "1: prints for each connection whether its data go through TCP, and why.",
             [](std::string_view value, Settings& settings) {
               return read_switch(value, settings.verbose);
             }},
};

std::string complaint(const Variable& variable, std::string_view value) {
  if (variable.explain) return std::string(variable.name) + ": " + variable.explain(value);
  return std::string(variable.name) + "=" + std::string(value) + ": must be " +
         std::string(variable.allowed);
}

}  // namespace

std::span<const Variable> variables() {
  return table;
}

std::string check_variable(std::string_view name, std::string_view value) {
  // The result is thrown away: only the value is checked.
  Settings scratch;
  for (const Variable& variable : table) {
    if (variable.name != name) continue;
    return variable.read(value, scratch) ? std::string() : complaint(variable, value);
  }
  return std::string(name) + ": no such variable; `weft help environment` lists them";
}

std::string read_environment(Settings& settings) {
  for (const Variable& variable : table) {
    const char* value = secure_getenv(std::string(variable.name).c_str());
    // An empty value counts as unset, so that a script can switch a variable off.
    if (!value || *value == '\0') continue;
    // Stops at the first wrong value: no device is made with a setting other than the one that was
    // meant.
    if (!variable.read(value, settings)) return complaint(variable, value);
  }
  return {};
}

// Not a member of Settings, because it concerns what the process prints and not the device.
bool environment_is_quiet() {
  const char* value = secure_getenv("WEFT_QUIET");
  return value && std::string_view(value) == "1";
}

}  // namespace weft::provider
