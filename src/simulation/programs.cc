#include "simulation/programs.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/kept_turn.h"
#include "base/system_call.h"

namespace weft::simulation {
namespace {

// The number of a program, and that of its wait, as the target of an event.
constexpr unsigned wait_bits = 32;

std::uint64_t wake_of(const Program& program) {
  return program.number << wait_bits | program.waits;
}

}  // namespace

// --- The life of a program -----------------------------------------------------------------------

void Programs::add(std::shared_ptr<SimulatedProcess> process, std::string name,
                   std::function<void()> function, bool in_background) {
  auto made = std::make_unique<Program>();
  made->number = programs_.size();
  made->name = std::move(name);
  made->process = std::move(process);
  made->function = std::move(function);
  made->in_background = in_background;
  made->waits_since = schedule_.now();
  plan(*made, schedule_.now());
  programs_.push_back(std::move(made));
}

// In the program's thread, which has the turn.
void Programs::run(Program& program) {
  program.turn.await();
  (void)kernel_.enter();
  try {
    if (!program.killed) program.function();
  } catch (const ProgramKilled&) {
    // The process is dead: what it has not finished has no effect.
  } catch (...) {
    if (!program.killed) failures_.push_back(std::current_exception());
  }
  program.function = nullptr;
  if (!program.in_background) end_process(program);
  program.state = Program::State::ended;
  kernel_.leave();
  program.turn.give_back();
}

// As at the exit of a process: its other threads end, then what the layers have kept for it.
void Programs::end_process(Program& program) {
  const auto process = program.process;
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    Program& other = *programs_[i];
    if (&other == &program || other.process != process) continue;
    other.killed = true;
    if (other.state == Program::State::waiting) lend_turn(other);
    if (other.state == Program::State::made) other.state = Program::State::ended;
  }
  for (auto& kept : process->kept) {
    // Taken out first: what is destroyed here finds an empty place.
    const auto last = std::move(kept);
    kept = nullptr;
  }
  process_ended_(*process);
}

// The thread begins with the first turn.
void Programs::lend_turn(Program& program) {
  Program* const before = std::exchange(running_, &program);
  const bool begins = program.state == Program::State::made;
  program.state = Program::State::running;
  if (begins) program.thread = std::thread([this, &program] { run(program); });
  program.turn.lend();
  running_ = before;
  if (program.state == Program::State::ended) program.thread.join();
}

void Programs::kill(const std::function<bool(const SimulatedProcess&)>& condemned) {
  std::vector<Program*> dying;
  for (const auto& each : programs_) {
    if (each->state == Program::State::ended || !condemned(*each->process)) continue;
    each->killed = true;
    process_ended_(*each->process);
    // A program ends the threads in its background itself.
    if (!each->in_background) dying.push_back(each.get());
  }
  for (Program* const program : dying) {
    if (program->state == Program::State::made) program->state = Program::State::ended;
    if (program->state == Program::State::waiting) lend_turn(*program);
  }
}

bool Programs::any_on(std::size_t host) const {
  return std::ranges::any_of(programs_, [host](const auto& each) {
    return each->state != Program::State::ended && !each->process->dead &&
           each->process->host == host;
  });
}

bool Programs::any() const {
  return std::ranges::any_of(programs_, [](const auto& each) {
    return each->state != Program::State::ended && !each->in_background;
  });
}

std::exception_ptr Programs::take_failure() {
  if (failures_.empty()) return nullptr;
  const std::exception_ptr first = failures_.front();
  failures_.erase(failures_.begin());
  return first;
}

std::string Programs::describe(const std::function<std::string(std::size_t)>& address,
                               Time began) const {
  std::string text;
  for (const auto& each : programs_) {
    if (each->state == Program::State::ended || each->in_background) continue;
    const std::chrono::duration<double> since(std::chrono::nanoseconds(each->waits_since - began));
    const char* what = each->wait.polls ? "polls" : "waits";
    if (each->state == Program::State::made) what = "has not begun";
    text += fmt::format("{}\"{}\" on {} {} since {:.9g} s", text.empty() ? "" : "; ", each->name,
                        address(each->process->host), what, since.count());
  }
  return text;
}

// --- The schedule --------------------------------------------------------------------------------

void Programs::plan(Program& program, Time due) {
  schedule_.add({due, Event::Kind::turn, wake_of(program)});
}

bool Programs::is_due(std::uint64_t wake) const {
  const Program& program = *programs_[wake >> wait_bits];
  const bool waits =
      program.state == Program::State::waiting || program.state == Program::State::made;
  return waits && wake_of(program) == wake;
}

void Programs::resume(std::uint64_t wake) {
  lend_turn(*programs_[wake >> wait_bits]);
}

// A turn of a program ends no polls of others: two that poll would otherwise keep the clock where
// it is.
void Programs::look(bool ends_polls) {
  for (const auto& each : programs_) {
    if (each->state != Program::State::waiting || each->wait.ends) continue;
    const bool over = each->wait.polls ? ends_polls : look_at(each->wait.entries) != 0;
    if (!over) continue;
    if (each->wait.polls) each->fruitless_since = 0;
    each->wait.ends = true;
    plan(*each, schedule_.now());
  }
}

// --- The program that runs -----------------------------------------------------------------------

const std::shared_ptr<SimulatedProcess>& Programs::process() const {
  return running_ ? running_->process : acting_;
}

Time Programs::now() const {
  return schedule_.now() + running_->process->ahead_ns;
}

// A bare system call, so that no library in between waits for real.
int Programs::look_at(std::span<pollfd> entries) {
  if (entries.empty()) return 0;
  constexpr timespec at_once{};
  constexpr std::size_t mask_bytes = 8;  // the kernel's signal set
  const long ready =
      system_call(SYS_ppoll, entries.data(), entries.size(), &at_once, nullptr, mask_bytes);
  return ready < 0 ? -errno : static_cast<int>(ready);
}

int Programs::wait(std::span<pollfd> entries, std::optional<Time> until) {
  Program& self = *running_;
  while (true) {
    if (const int ready = look_at(entries); ready != 0) return ready;
    if (until && now() >= *until) return 0;
    if (self.killed && !until) return -ECANCELED;
    if (self.killed) {
      self.process->ahead_ns += *until - now();
      return 0;
    }
    park(self, {.entries = entries, .until = until});
    if (self.killed) return -ECANCELED;
  }
}

// The next event ends the pause, or else a time that grows with the time since the last event: so
// the program sees the end of its own timeouts, and a long one in few steps.
void Programs::pause() {
  Program& self = *running_;
  end_if_killed();
  if (self.killed) return;
  constexpr Time shortest_ns = 1000;
  constexpr Time share = 8;
  if (self.fruitless_since == 0) self.fruitless_since = schedule_.now();
  const Time fruitless = schedule_.now() - self.fruitless_since;
  park(self, {.entries = {},
              .until = schedule_.now() + std::max(shortest_ns, fruitless / share),
              .polls = true});
  end_if_killed();
}

void Programs::note_look() {
  constexpr unsigned looks_per_pause = 16;
  if (running_->in_background || KeptTurn::is_kept()) return;
  if (++running_->looks >= looks_per_pause) pause();
}

void Programs::end_if_killed() const {
  if (running_ && running_->killed && std::uncaught_exceptions() == 0) throw ProgramKilled{};
}

void Programs::park(Program& program, const Wait& wait) {
  program.wait = wait;
  program.waits_since = schedule_.now();
  ++program.waits;
  program.looks = 0;
  if (wait.until) plan(program, *wait.until);
  program.state = Program::State::waiting;
  program.turn.give_back();
  program.turn.await();
}

}  // namespace weft::simulation
