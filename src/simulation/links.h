// How fast bytes travel between two hosts of a simulation, and whether they do.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "simulation/pipe.h"
#include "weft/simulation.hpp"

namespace weft::simulation {

// Between two hosts, or within one.
struct LinkState {
  Link options;
  bool cut = false;
  Time cut_since = 0;
};

class Links {
 public:
  explicit Links(const Link& standard) : standard_(standard) {}

  // The place of an element of std::map does not change.
  [[nodiscard]] LinkState& between(std::size_t a, std::size_t b) {
    return links_.try_emplace(std::minmax(a, b), LinkState{.options = standard_}).first->second;
  }

 private:
  Link standard_;
  std::map<std::pair<std::size_t, std::size_t>, LinkState> links_;
};

}  // namespace weft::simulation
