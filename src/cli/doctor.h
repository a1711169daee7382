// `weft doctor`: checks what this machine has and lacks, and whether the device works on it.
#pragma once

#include <cstdint>
#include <string>

namespace weft::cli {

struct DoctorOptions {
  std::string peer;  // the host where `weft doctor --serve` runs; empty: test this machine alone
  std::uint16_t port = 20886;
  bool serve = false;
  bool json = false;
};

// Returns the exit status: 0 healthy, 1 there is a problem, 2 wrong options. With `serve` it
// returns only if the server cannot be started.
int doctor(const DoctorOptions& options);

}  // namespace weft::cli
