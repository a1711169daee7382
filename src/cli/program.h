// The program that `weft run` starts: where it is, and whether it will see the device.
#pragma once

#include <string>

namespace weft::cli {

struct Program {
  std::string path;     // as found, for exec; empty: it cannot be started
  int exit_status = 0;  // where it cannot: 127 not found, 126 not executable, as shells say
  std::string problem;  // the sentence for that
  std::string warning;  // it starts, but will not use the embedded device: why
};

// Looks along PATH, as execvp(3) does.
[[nodiscard]] Program find_program(const std::string& name);

}  // namespace weft::cli
