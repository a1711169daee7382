// The programs of a simulation, of which at most one runs at a time: a program hands over where it
// waits, and goes on when an event of the schedule gives it the turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include "base/simulated_kernel.h"
#include "simulation/program.h"
#include "simulation/schedule.h"

namespace weft::simulation {

class Programs {
 public:
  // `ended` is called when the last thread of a process has ended.
  Programs(SimulatedKernel& kernel, Schedule& schedule,
           std::function<void(SimulatedProcess&)> ended)
      : kernel_(kernel), schedule_(schedule), process_ended_(std::move(ended)) {}

  // Starts a program, or a thread in the background of its process. It runs from the next event on.
  void add(std::shared_ptr<SimulatedProcess> process, std::string name,
           std::function<void()> function, bool in_background);
  // Ends those of these processes, by an exception from the call in which each waits. Returns when
  // all have unwound, but for those that have called this.
  void kill(const std::function<bool(const SimulatedProcess&)>& condemned);
  [[nodiscard]] bool any_on(std::size_t host) const;
  [[nodiscard]] bool any() const;
  // The first exception that a program has ended with; null: none.
  [[nodiscard]] std::exception_ptr take_failure();
  // The programs that have not ended and what each does, for messages. `began`: the time 0.
  [[nodiscard]] std::string describe(const std::function<std::string(std::size_t)>& address,
                                     Time began) const;

  // --- Of the schedule

  [[nodiscard]] bool is_due(std::uint64_t wake) const;
  // Lets the program run until it waits again.
  void resume(std::uint64_t wake);
  // After an event: plans the turns of programs whose wait it has ended.
  void look(bool ends_polls);

  // --- Of the program that runs

  // A program has called; else it is the thread of the world.
  [[nodiscard]] bool inside() const { return running_ != nullptr; }
  // Of the program that runs, or of the device that an event has reached; null: neither.
  [[nodiscard]] const std::shared_ptr<SimulatedProcess>& process() const;
  [[nodiscard]] int wait(std::span<pollfd> entries, std::optional<Time> until);
  // The same without waiting, as ppoll(2).
  [[nodiscard]] static int look_at(std::span<pollfd> entries);
  // After a look that has found nothing, and often precedes a wait. Of several, one is a pause.
  void note_look();
  void end_if_killed() const;

  // While it exists, the device of this process does something.
  class Acting {
   public:
    Acting(Programs& programs, std::shared_ptr<SimulatedProcess> process)
        : of_(programs), before_(std::exchange(programs.acting_, std::move(process))) {}
    ~Acting() { of_.acting_ = std::move(before_); }
    Acting(const Acting&) = delete;
    Acting& operator=(const Acting&) = delete;

   private:
    Programs& of_;
    std::shared_ptr<SimulatedProcess> before_;
  };

 private:
  void pause();
  void plan(Program& program, Time due);
  void lend_turn(Program& program);
  void run(Program& program);
  void end_process(Program& program);
  void park(Program& program, const Wait& wait);
  [[nodiscard]] Time now() const;

  SimulatedKernel& kernel_;
  Schedule& schedule_;
  std::function<void(SimulatedProcess&)> process_ended_;
  std::vector<std::unique_ptr<Program>> programs_;
  Program* running_ = nullptr;
  std::shared_ptr<SimulatedProcess> acting_;
  std::vector<std::exception_ptr> failures_;
};

}  // namespace weft::simulation
