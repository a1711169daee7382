// Findings: prints each one once for each place, and keeps them for the JSON report.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "check/catalog.h"
#include "check/inside.h"
#include "check/options.h"
#include "check/stacks.h"
#include "check/suppressions.h"

namespace weft::check {

// One stack of a finding, and what happened there: "The request was posted here".
struct Place {
  std::string what;
  StackId stack = 0;
};

struct Finding {
  Rule rule = Rule::dead_key;
  std::string what;           // one or more sentences about this case
  std::vector<Place> places;  // the first one is where the program went wrong
};

// Thread-safe.
class Reporter {
 public:
  Reporter(Options options, Stacks& stacks);
  // Prints the finding unless the place has one of this rule already. With WEFT_CHECK=fatal the
  // process ends here.
  void report(const Finding& finding);
  // At the exit of the process. Returns the exit status that the user wants for a program with
  // findings, or -1.
  int finish();
  // Around fork(2). The child begins without findings, and writes a report of its own.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child();

 private:
  struct Printed {
    Finding finding;
    std::vector<std::vector<Frame>> stacks;
    std::uint64_t times = 1;
  };

  bool is_known(const Finding& finding);
  void print(const Printed& printed) const;
  void write_json();

  const Options options_;
  Stacks& stacks_;
  InsideMutex mutex_;
  Suppressions suppressions_;
  Descriptor file_;
  bool in_child_ = false;
  std::vector<Printed> printed_;
  // By rule and first stack: the index in printed_, or -1 for one that is suppressed.
  std::map<std::pair<Rule, StackId>, int> known_;
};

}  // namespace weft::check
