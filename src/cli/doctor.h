// `weft doctor`: what this machine has and lacks, and whether the device works on it.
#pragma once

#include <cstdint>
#include <string>

namespace weft::cli {

struct DoctorOptions {
  std::string peer;  // where `weft doctor --serve` runs; empty: this machine alone
  std::uint16_t port = 20886;
  bool serve = false;
  bool json = false;
};

// 0: healthy, 1: there is a problem, 2: wrong options. With `serve`, does not return until it is
// interrupted.
int doctor(const DoctorOptions& options);

}  // namespace weft::cli
