#include "cli/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/checks.h"
#include "cli/finding.h"
#include "cli/libraries.h"
#include "cli/selftest.h"
#include "cli/terminal.h"

namespace weft::cli {
namespace {

// The width of the text, also on wider terminals.
constexpr std::size_t columns = 100;

const char* word(Health health) {
  switch (health) {
    case Health::good:
      return "ok";
    case Health::note:
      return "note";
    case Health::problem:
      return "problem";
  }
  return "";
}

// Notes do not count: Weft works with them.
bool healthy(const Findings& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.health == Health::problem; });
}

void print_text(const Findings& findings) {
  constexpr std::size_t indent = 10;
  for (const Finding& finding : findings) {
    std::string text =
        wrapped(fmt::format("{}: {}", finding.subject, finding.sentence), indent, columns);
    const std::string tag = fmt::format("{:<{}}", fmt::format("{}", word(finding.health)), indent);
    // The tag replaces the indentation of the first line, after the text was broken: the bytes of
    // its colours have no width.
    text.replace(0, indent, finding.health == Health::problem ? bold(tag, STDOUT_FILENO) : tag);
    fmt::print("{}", text);
    if (!finding.fix.empty()) fmt::print("{}", wrapped("-> " + finding.fix, indent, columns));
  }
  fmt::print("\n{}\n", healthy(findings) ? "Weft works here." : "Weft does not fully work here.");
}

// Output of other programs, such as dlerror(), may not be valid UTF-8: replace bad bytes.
void print_json(const Findings& findings) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    all.push_back({{"subject", finding.subject},
                   {"health", word(finding.health)},
                   {"sentence", finding.sentence},
                   {"fix", finding.fix}});
  }
  const nlohmann::ordered_json document{{"healthy", healthy(findings)}, {"findings", all}};
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void check_machine(const std::string& folder, Findings& findings) {
  check_adapters(findings);
  check_rdma_core(folder, findings);
  check_addresses(findings);
  check_limits(findings);
  check_priority(findings);
  check_sandbox(findings);
  check_calls(findings);
  check_debug_registers(findings);
  check_ports(findings);
  check_open_ports(folder, findings);
  check_environment(findings);
}

}  // namespace

// The checks of the machine come first, because they may explain why the device fails.
int doctor(const DoctorOptions& options) {
  const auto folder = library_folder();
  if (options.serve && folder.empty()) {
    print_error("the drop-in libraries are not beside this program; build or install it again");
    return 1;
  }
  const std::string unusable = unusable_folder(folder);
  if (options.serve && !unusable.empty()) {
    print_error(unusable);
    return 1;
  }
  Findings findings;
  // With --serve the output is that of the server alone.
  if (!options.serve) check_machine(folder.string(), findings);
  // Lines of the device on standard error would be taken for output of the self-test.
  setenv("WEFT_QUIET", "1", 1);
  // The self-test shows how its connection moves data.
  if (!options.serve) setenv("WEFT_VERBOSE", "1", 1);
  prepend_library_path(folder);
  if (options.serve) return serve_peers(folder, options.port);
  if (folder.empty()) {
    findings.push_back({"device", Health::problem,
                        "The drop-in libraries are not beside this program.",
                        "Build or install Weft again."});
  } else if (!unusable.empty()) {
    findings.push_back({"device", Health::problem, fmt::format("Programs have none: {}.", unusable),
                        "`weft run` refuses to start programs until then."});
  } else {
    show_device(folder, findings);
    try_device(folder, findings);
    if (!options.peer.empty()) try_peer(folder, options.peer, options.port, findings);
  }
  options.json ? print_json(findings) : print_text(findings);
  return healthy(findings) ? 0 : 1;
}

}  // namespace weft::cli
