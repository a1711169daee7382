// A process of a simulation. It ends when its program returns, or by kill(); then its sockets are
// closed, and it does nothing any more without noticing that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft::simulation {

struct SimulatedProcess {
  std::size_t host;
  bool dead = false;
  bool is_program = false;  // else a device that the thread of the world has opened
  // By SimulatedKernel::Keeper; of programs.
  std::array<std::shared_ptr<void>, 2> kept{};
  // How far its clock is ahead. A program that was killed unwinds without waiting: its timeouts
  // are over at once.
  std::uint64_t ahead_ns = 0;
};

}  // namespace weft::simulation
