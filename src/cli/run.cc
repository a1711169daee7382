#include "cli/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "check/options.h"
#include "cli/descriptor_limit.h"
#include "cli/libraries.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "provider/environment.h"

namespace weft::cli {
namespace {

namespace files = std::filesystem;

constexpr int misused = 2;
constexpr int cannot_execute = 126;

// An option replaces the variable of the environment.
void set(const char* name, const std::string& value) {
  setenv(name, value.c_str(), 1);
}

// The rules of all options as one value. Files are named by their absolute paths, because the
// program may change its directory before it opens the device.
std::string fault_rules(const std::vector<std::string>& given) {
  std::string rules;
  for (const std::string& each : given) {
    // A line end separates rules, and also ends a comment of the rules before.
    if (!rules.empty()) rules += '\n';
    rules += each.starts_with('@') ? "@" + files::absolute(each.substr(1)).string() : each;
  }
  return rules;
}

// What is wrong with the options that are not variables' values; empty: nothing. CLI11 gives a flag
// without a value the text "true".
std::string wrong_option(const RunOptions& options) {
  const std::string& sockets = options.sockets;
  if (!sockets.empty() && sockets != "true" && sockets != "fallback" && sockets != "always") {
    return fmt::format("--sockets={}: must be --sockets, --sockets=fallback or --sockets=always",
                       sockets);
  }
  if (!options.check.empty() && options.check != "true" && options.check != "fatal") {
    return fmt::format("--check={}: must be --check or --check=fatal", options.check);
  }
  const std::string& suppressions = options.check_suppressions;
  if (!suppressions.empty() && ::access(suppressions.c_str(), R_OK) != 0) {
    return fmt::format("--check-suppressions {}: {}; name a file that can be read", suppressions,
                       std::strerror(errno));
  }
  return {};
}

// The other options of checks need no --check.
void set_check_variables(const RunOptions& options) {
  const bool implied = !options.check_report.empty() || !options.check_status.empty() ||
                       !options.check_suppressions.empty();
  if (!options.check.empty() || implied) {
    set("WEFT_CHECK", options.check == "fatal" ? "fatal" : "1");
  }
  if (!options.check_report.empty()) {
    set("WEFT_CHECK_REPORT", files::absolute(options.check_report).string());
  }
  if (!options.check_status.empty()) set("WEFT_CHECK_STATUS", options.check_status);
  if (!options.check_suppressions.empty()) {
    set("WEFT_CHECK_SUPPRESSIONS", files::absolute(options.check_suppressions).string());
  }
}

void set_variables(const RunOptions& options) {
  if (!options.address.empty()) set("WEFT_ADDR", options.address);
  if (!options.personality.empty()) set("WEFT_PERSONALITY", options.personality);
  if (!options.progress.empty()) set("WEFT_PROGRESS", options.progress);
  if (!options.priority.empty()) set("WEFT_PRIORITY", options.priority);
  if (!options.port_offset.empty()) set("WEFT_PORT_OFFSET", options.port_offset);
  if (!options.same_host.empty()) set("WEFT_SAME_HOST", options.same_host);
  if (!options.ptracer.empty()) set("WEFT_PTRACER", options.ptracer);
  if (!options.shared_heap.empty()) set("WEFT_SHARED_HEAP", options.shared_heap);
  if (options.verbose) set("WEFT_VERBOSE", "1");
  if (options.no_acknowledge) set("WEFT_ACK", "0");
  if (options.no_crc) set("WEFT_CRC", "0");
  // Without a value, the preloaded library alone is enough.
  if (options.sockets == "fallback" || options.sockets == "always") {
    set("WEFT_SOCKETS", options.sockets);
  }
  // The program may change its directory before it opens the device.
  if (!options.capture.empty()) set("WEFT_CAPTURE", files::absolute(options.capture).string());
  if (!options.faults.empty()) set("WEFT_FAULT", fault_rules(options.faults));
  if (!options.adapter.empty()) set("WEFT_ADAPTER", options.adapter);
  set_check_variables(options);
  if (!options.link.empty()) set("WEFT_LINK", options.link);
  if (!options.trace.empty()) set("WEFT_TRACE", files::absolute(options.trace).string());
  if (!options.stats.empty()) set("WEFT_STATS", files::absolute(options.stats).string());
}

// Prints an error and returns false if a variable has a value that the device would refuse.
// The check precedes the program, which may open the device late or hide its error.
bool check_variables() {
  for (const provider::Variable& variable : provider::variables()) {
    const char* value = std::getenv(std::string(variable.name).c_str());
    if (!value || !*value) continue;
    const std::string wrong = provider::check_variable(variable.name, value);
    if (wrong.empty()) continue;
    print_error(wrong);
    return false;
  }
  return true;
}

// Without a warning, a misspelt variable would silently have no effect.
void warn_of_unknown_variables() {
  const auto known = provider::variables();
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    // Variables of the tests are not documented.
    if (!name.starts_with("WEFT_") || name.starts_with("WEFT_TEST") || name == "WEFT_SEED")
      continue;
    if (std::none_of(known.begin(), known.end(), [&](const auto& v) { return v.name == name; })) {
      print_notice(
          fmt::format("{} has no effect; `weft help environment` lists the variables", name));
    }
  }
}

// Prints the line that the device itself would print; set before it starts, so without its address
// unless WEFT_ADDR is set.
void announce(const std::string& name, bool streams) {
  const char* address = std::getenv("WEFT_ADDR");
  const char* capture = std::getenv("WEFT_CAPTURE");
  const char* personality = std::getenv("WEFT_PERSONALITY");
  std::string line = "weft0 (embedded iWARP device";
  const std::string_view look = personality ? personality : "roce";
  if (look != "iwarp") line += look == "ib" ? ", seen as InfiniBand" : ", seen as RoCE";
  if (address && *address) line += fmt::format(", {}", address);
  line += fmt::format(") serves {}", name);
  if (streams) line += ", its TCP sockets are RDMA streams";
  if (capture && *capture) line += fmt::format(", capture in {}", capture);
  print_notice(line);
}

// stdio is flushed first: the program must not inherit unwritten output.
int execute(const std::string& path, const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  // execvp(3) does not change the arguments, although their type is not const.
  arguments.reserve(command.size() + 1);
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  execvp(path.c_str(), arguments.data());  // not execv: scripts without #! run as in a shell
  print_error(fmt::format("cannot start {}: {}", path, std::strerror(errno)));
  return cannot_execute;
}

// The other checks need no library of their own.
void preload_heap(const files::path& folder) {
  constexpr const char* library = "libweft-heap.so";
  if (has_library(folder, library)) return preload_before_allocators(folder, library);
  print_notice(fmt::format(
      "{} is not in {}: memory that is freed while it is registered or posted is not reported; "
      "build or install it again",
      library, folder.string()));
}

// Only memory that programs register themselves gains by it, and programs on sockets register
// none.
void preload_shared_heap(const files::path& folder, bool sockets) {
  const char* const given = std::getenv("WEFT_SHARED_HEAP");
  const std::string_view mode = given ? given : "";
  if (mode == "off" || (sockets && mode.empty())) return;
  constexpr const char* library = "libweft-shared-heap.so";
  if (has_library(folder, library)) return preload_before_allocators(folder, library);
  print_notice(fmt::format(
      "{} is not in {}: what processes of this host write to each other's memory costs a system "
      "call each; build or install it again",
      library, folder.string()));
}

// What is wrong with the folder of the drop-in libraries; empty: nothing.
std::string wrong_libraries(const files::path& folder, bool sockets) {
  if (folder.empty()) {
    return "libibverbs.so.1 of Weft is not beside this program, in ../lib/weft or "
           "../" WEFT_LIBDIR "/weft; build or install it again";
  }
  // The loader only warns about a missing library of LD_PRELOAD. The program would then run on
  // plain TCP.
  if (sockets && !has_library(folder, "libweft-sockets.so")) {
    return fmt::format(
        "libweft-sockets.so, which --sockets needs, is not in {}; build or install it again, or "
        "leave --sockets out",
        folder.string());
  }
  return unusable_folder(folder);
}

}  // namespace

int run(const RunOptions& options) {
  const bool sockets = !options.sockets.empty();
  const std::string wrong = wrong_option(options);
  if (!wrong.empty()) {
    print_error(wrong);
    return misused;
  }
  set_variables(options);
  if (!check_variables()) return misused;
  warn_of_unknown_variables();

  const files::path folder = library_folder();
  if (const std::string missing = wrong_libraries(folder, sockets); !missing.empty()) {
    print_error(missing);
    return cannot_execute;
  }
  // This precedes the line about the device, which must not come before such an error.
  const Program program = find_program(options.command.front());
  if (program.path.empty()) {
    print_error(program.problem);
    return program.exit_status;
  }
  if (!program.warning.empty()) print_notice(program.warning);
  const bool streams = sockets && program.sockets_warning.empty();
  if (sockets && !streams) print_notice(program.sockets_warning);
  if (!options.quiet && !provider::environment_is_quiet())
    announce(options.command.front(), streams);
  set("WEFT_QUIET", "1");  // announced once for all processes of the program
  prepend_library_path(folder);
  // Most programs need only the libraries, so that this is no reason to stop.
  if (has_library(folder, "libweft-node.so")) {
    append_preload(folder, "libweft-node.so");
  } else {
    print_notice(fmt::format(
        "libweft-node.so is not in {}: programs that look for /dev/infiniband/uverbs0, such as "
        "those that use UCX, will not find a device; build or install it again",
        folder.string()));
  }
  if (sockets) append_preload(folder, "libweft-sockets.so");
  preload_shared_heap(folder, sockets);
  // In front of the other one, whose calls it reports.
  if (check::read_options().on) preload_heap(folder);
  raise_descriptor_limit();  // each connection is a descriptor
  return execute(program.path, options.command);
}

}  // namespace weft::cli
