// The state of `weft run --check` in one process. It exists only if the user asked for it: its
// functions are called by a copy of the provider's table and by copies of the operations of each
// context (table.h), which are in place only then.
#pragma once

#include <infiniband/verbs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "check/accesses.h"
#include "check/completion_accounts.h"
#include "check/early_accesses.h"
#include "check/event_accounts.h"
#include "check/imports.h"
#include "check/inside.h"
#include "check/objects.h"
#include "check/parent_domains.h"
#include "check/polled_writes.h"
#include "check/regions.h"
#include "check/report.h"
#include "check/requests.h"
#include "check/stacks.h"
#include "check/traps.h"
#include "provider/table.h"

namespace weft::check {

// What the hooks call after their own work.
struct Below {
  const provider::Table* table = nullptr;
  ibv_context_ops operations{};  // of the embedded device's contexts, which are all alike
  verbs_context extended{};
};

struct Checker {
  explicit Checker(const Options& options) : reporter(options, stacks) {}

  Stacks stacks;
  Reporter reporter;
  Below below;
  // Not the child of a fork(2), which inherits the objects and the exit handler.
  const pid_t process = getpid();
  std::atomic<bool> fork_ready{false};  // ibv_fork_init(3)
  EarlyAccesses early_accesses;
  PolledWrites polled_writes;
  // Covers the members below it. No function of the device is called while it is held.
  InsideMutex mutex;
  Objects objects;
  Imports imports;
  ParentDomains parent_domains;
  Regions regions;
  CompletionAccounts completions;
  EventAccounts events;
  Requests requests;
  Writers writers;
  Accesses accesses;
};

// Only for functions that are reached while the checker exists.
[[nodiscard]] Checker& checker();
// Null if the user did not ask for it.
[[nodiscard]] Checker* checker_if_on();

// Reports what the debug registers have found.
void report_accesses();

// One call of the program into verbs. Its thread's accesses to memory are the device's meanwhile.
class Call {
 public:
  explicit Call(const char* function)
      : function_(function), additions_(checker().objects.additions()) {
    report_accesses();
  }
  // The stack of the call, taken at the first use.
  [[nodiscard]] StackId stack();
  [[nodiscard]] const char* function() const { return function_; }
  // False, after a report, for an object that is destroyed: it must not be used. In the child of a
  // fork(2) an object of the parent is reported, and may be used.
  [[nodiscard]] bool may_use(const void* object);
  // Notes a new object, and one that is destroyed.
  void made(Object object);
  void destroyed(const void* object);
  // Reports why the destruction of the object fails with EBUSY.
  void refused(const void* object);
  void report(Rule rule, const std::string& what, const char* here, std::vector<Place> others = {});

 private:
  void report_inherited(const Object& object);

  const Inside inside_;
  InsideDevice inside_device_;
  const char* function_;
  const std::uint64_t additions_;  // of objects, before the call
  StackId stack_ = 0;
};

// Keeps errno as the device has set it, for the rest of a scope.
class KeptErrno {
 public:
  KeptErrno() = default;
  KeptErrno(const KeptErrno&) = delete;
  KeptErrno& operator=(const KeptErrno&) = delete;
  ~KeptErrno() { errno = saved_; }

 private:
  int saved_ = errno;
};

}  // namespace weft::check
