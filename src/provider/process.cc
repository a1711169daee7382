#include "provider/process.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/own_sockets.h"
#include "base/simulated_kernel.h"
#include "device/addresses.h"
#include "device/datagram/datagrams.h"
#include "device/system.h"
#include "provider/environment.h"
#include "provider/options.h"

namespace weft::provider {
namespace {

// Globals, because functions of the C interface have no object to keep them in.
constinit std::mutex building;
constinit std::atomic<Process*> the_process{nullptr};

// The line that a program prints at its start, with the first address of the device.
std::string start_line(const device::Device& device) {
  const auto& addresses = device.addresses();
  std::string first = device::to_string(addresses.front().address);
  first.erase(first.rfind(':'));  // the port
  std::string line = "weft0 (embedded iWARP device, ";
  if (device.is_roce()) line += device.has_lids() ? "seen as InfiniBand, " : "seen as RoCE, ";
  line += first;
  if (const std::size_t more = addresses.size() - 1) {
    line += " and " + std::to_string(more) + (more == 1 ? " more address" : " more addresses");
  }
  return line + ") serves this program";
}

// The seed is printed in each run, because one that failed may have to be repeated.
std::string fault_line(const device::DeviceFaults& faults) {
  const std::size_t rules = faults.plan().size();
  return std::to_string(rules) + (rules == 1 ? " rule" : " rules") +
         " of WEFT_FAULT for this program, with seed=" + std::to_string(faults.plan().seed());
}

std::atomic<std::uint64_t>& counter_of(device::Refusals& counted, Refusal why) {
  switch (why) {
    case Refusal::timed_out:
      return counted.timed_out;
    case Refusal::closed:
      return counted.closed;
    case Refusal::evicted:
      return counted.evicted;
    case Refusal::out_of_descriptors:
      return counted.out_of_descriptors;
    case Refusal::malformed:
      break;
  }
  return counted.malformed;
}

}  // namespace

Process::Process() : manager_([this] { return shared_context(); }) {}

Process::~Process() {
  if (statistics_) statistics_->write("exit");
}

namespace {

// A host of a simulation has one address, no processes of one user, and no other programs that use
// its ports.
void take_from_simulation(device::Settings& settings) {
  settings.progress.mode = device::ProgressMode::manual;
  settings.gids = device::GidTable::one;
  settings.address.clear();
  settings.same_host = device::SameHost::off;
  settings.port_offset = 0;
}

// Where a program of a simulation keeps its object; null outside of them.
std::shared_ptr<void>* place_in_simulation() {
  SimulatedKernel* const kernel = SimulatedKernel::current();
  return kernel ? kernel->kept(SimulatedKernel::Keeper::provider) : nullptr;
}

}  // namespace

// Objects that the program has left behind must stay usable, as far as they are of a process that
// has ended, and so must what they refer to.
void Process::retire(Process* process) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<Process*>;  // never deleted, as that of a real process
  if (!process->is_in_use()) {
    delete process;
    return;
  }
  const std::lock_guard lock(mutex);
  kept->push_back(process);
}

bool Process::is_in_use() {
  if (manager_.has_objects() || !other_devices_.empty()) return true;
  return device_ && device_->contexts() > (shared_context_ ? 1U : 0U);
}

Process* Process::existing() {
  if (const auto* place = place_in_simulation()) return static_cast<Process*>(place->get());
  return the_process;
}

Process& Process::current() {
  if (auto* place = place_in_simulation()) [[unlikely]] {
    if (!*place) *place = std::shared_ptr<Process>(new Process, &Process::retire);
    return *static_cast<Process*>(place->get());
  }
  if (Process* known = the_process) return *known;
  // Handlers of pthread_atfork(3) cannot be removed and are inherited, so they are registered once,
  // also if the child makes a process object of its own.
  static constinit bool registered = false;
  const std::lock_guard lock(building);
  // Another thread may have made it while this one waited for the lock.
  if (Process* known = the_process) return *known;
  if (!registered) {
    pthread_atfork([] { before_fork(); }, [] { after_fork_in_parent(); },
                   [] { after_fork_in_child(); });
    registered = true;
  }
  the_process = new Process;
  return *the_process;
}

// Takes no lock of the device: handlers of pthread_atfork(3) that run after this one may call
// verbs.
void Process::before_fork() {
  building.lock();
}

void Process::after_fork_in_parent() {
  building.unlock();
}

// Only this thread exists in the child, and locks that other threads held are never released. So
// the parent's objects close their descriptors here and are never used or destroyed.
void Process::after_fork_in_child() {
  if (Process* old = the_process.exchange(nullptr)) {
    if (old->statistics_) old->statistics_->abandon_after_fork();
    if (old->live_server_) old->live_server_->abandon_after_fork();
    if (old->device_) old->device_->abandon_after_fork();
    old->other_devices_.abandon_after_fork();
    old->manager_.abandon_after_fork();
    own_sockets::close_after_fork();
  }
  building.unlock();
}

device::Device* Process::device() {
  const std::lock_guard lock(mutex_);
  if (!device_) build();
  // After build(), which leaves errno at any value.
  if (!device_) errno = ENODEV;
  return device_.get();
}

void Process::count_refusal(Refusal why) {
  const std::lock_guard lock(mutex_);
  ++counter_of(device_ ? device_->refusals() : early_refusals_, why);
}

device::Engine* Process::engine() {
  const Process* process = existing();
  return process ? process->engine_.load() : nullptr;
}

void Process::start_thread() {
  if (device::Device* const made = current().device()) made->engine().start();
}

// Before the device is made, what it will be. A wrong variable is reported when it is made. In a
// simulation every wait drives the devices.
bool Process::is_manual() {
  if (SimulatedKernel::current()) return false;
  if (const device::Engine* engine = engine_) {
    return engine->mode() == device::ProgressMode::manual;
  }
  const std::lock_guard lock(mutex_);
  device::Settings settings;
  if (configured_) {
    settings.progress.mode = configured_->progress.mode;
  } else {
    (void)read_environment(settings);
  }
  return settings.progress.mode == device::ProgressMode::manual;
}

void Process::publish_counters() {
  const Process* process = existing();
  SysfsCounters* const counters = process ? process->published_.load() : nullptr;
  if (counters) counters->publish(SysfsCounters::patient);
}

device::TraceFile* Process::trace() {
  const Process* process = existing();
  return process ? process->trace_.load() : nullptr;
}

namespace {

// The C library loads libgcc_s when a thread ends by pthread_exit(3), and aborts the process if no
// descriptor is left then. Our libraries contain their own copy, so it is loaded here, before the
// device takes descriptors.
void load_unwinder() {
  static const void* const library = ::dlopen("libgcc_s.so.1", RTLD_LAZY);
  (void)library;
}

}  // namespace

// With mutex_ held. A failure is not remembered: the next call tries again.
void Process::build() {
  if (SimulatedKernel::current() && !place_in_simulation()) {
    return complain(
        "a simulation has no device that the whole process shares, and no rdma_cm: run programs on "
        "its hosts (Host::run() of weft/simulation.hpp), which have both; or open the devices of "
        "its hosts, and connect queue pairs by their endpoints");
  }
  device::Settings settings;
  if (configured_) {
    settings = *configured_;
  } else if (const std::string wrong = read_environment(settings); !wrong.empty()) {
    return complain(wrong);
  }
  if (SimulatedKernel::current()) take_from_simulation(settings);
  load_unwinder();
  auto made = device::Device::create(settings);
  if (!made) return complain(made.error());
  device_ = std::move(*made);
  engine_ = &device_->engine();
  for (const Refusal why : all_refusals) {
    counter_of(device_->refusals(), why) += counter_of(early_refusals_, why);
  }
  keep_statistics();
  trace_ = device_->trace().get();
  // A program of a simulation ends before the process does, and with it what it has.
  if (device_->engine().simulated()) return;
  live_server_ = LiveServer::open(*device_);
  sysfs_counters_ = SysfsCounters::begin(*device_);
  published_ = sysfs_counters_.get();
  finish_at_exit();
  if (!environment_is_quiet()) log(LogLevel::info, "weft0", start_line(*device_));
  if (const device::DeviceFaults* faults = device_->faults()) {
    log(LogLevel::info, "faults", fault_line(*faults));
  }
  if (device_->link()) begin_link();
}

// With mutex_ held.
void Process::begin_link() {
  log(LogLevel::info, "link",
      "WEFT_LINK slows the network of this program, with seed=" +
          std::to_string(device_->link()->seed()));
}

// With mutex_ held. Looks the object up at the exit, because a child of fork(2) inherits the
// function and has a process object of its own, or none.
void Process::finish_at_exit() {
  static constinit bool registered = false;  // also in the child of a fork
  if (std::exchange(registered, true)) return;
  std::atexit([] {
    Process* const process = the_process;
    if (process && process->device_) process->finish();
  });
}

// The files of the trace and the counters are right at any time; here they get their last changes.
// A datagram completes when the link has taken it, and a program may exit after its last
// completion, so what is still on the link leaves now.
void Process::finish() {
  if (device_->link()) device_->datagrams().send_delayed();
  if (device_->trace()) device_->trace()->close();
  if (sysfs_counters_) sysfs_counters_->publish(SysfsCounters::patient);
  if (statistics_) statistics_->write("exit");
}

// With mutex_ held. A file that cannot be written is reported, and the device works without it.
void Process::keep_statistics() {
  if (device_->settings().stats_path.empty()) return;
  auto opened = Statistics::open(*device_);
  if (!opened) return complain(opened.error());
  statistics_ = *opened;
  // Statistics of a program of a simulation are written by the destructor.
  if (device_->engine().simulated()) return;
  statistics_->listen_for_signal();
}

void Process::complain(const std::string& sentence) {
  // A program that tries again and again would otherwise print the same line each time.
  if (sentence == complaint_) return;
  complaint_ = sentence;
  log(LogLevel::error, "weft0", sentence);
}

std::string Process::why_no_device() {
  const std::lock_guard lock(mutex_);
  return device_ ? std::string() : complaint_;
}

int Process::configure(const DeviceOptions& options, std::string& why) {
  device::Settings settings;
  why = to_settings(options, settings).sentence;
  if (!why.empty()) return EINVAL;
  const std::lock_guard lock(mutex_);
  if (device_) {
    why = "it is in use already; configure it before the first call that needs a device";
    return EBUSY;
  }
  configured_ = std::move(settings);
  return 0;
}

device::Context* Process::open_configured(const DeviceOptions& options, std::string& why) {
  device::Settings settings;
  why = to_settings(options, settings).sentence;
  if (!why.empty()) {
    errno = EINVAL;
    return nullptr;
  }
  if (SimulatedKernel::current()) take_from_simulation(settings);
  load_unwinder();
  return other_devices_.open(settings, why);
}

device::Context* Process::shared_context() {
  // Before the lock, because device() takes it as well.
  device::Device* made = device();
  if (!made) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!shared_context_) shared_context_ = make_context(*made);
  return shared_context_.get();
}

// Without a lock of the process-wide device: called at the start of most functions of the table.
bool Process::owns(ibv_context* context) {
  device::Device& device = device::Context::of(context)->device();
  Process* const process = existing();
  if (process && process->has(device)) return true;
  // The thread of a simulation has opened it, outside of the programs.
  Process* const outside = the_process;
  return outside && outside != process && device.engine().simulated() && outside->has(device);
}

// The device is set once, before any context of it exists.
bool Process::has(const device::Device& device) {
  return &device == device_.get() || other_devices_.has(device);
}

}  // namespace weft::provider
