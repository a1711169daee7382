// Finds the program that `weft run` starts, and checks whether it will see the device.
#pragma once

#include <string>

namespace weft::cli {

struct Program {
  std::string path;     // for exec; empty if it cannot be started
  int exit_status = 0;  // if it cannot: 127 not found, 126 not executable, as in shells
  std::string problem;  // the error message for that
  std::string warning;  // why it will not use the embedded device although it starts
  // Why its sockets will not be streams although it starts; empty if they will, or nothing is
  // known.
  std::string sockets_warning;
};

// Searches PATH, as execvp(3) does.
[[nodiscard]] Program find_program(const std::string& name);

}  // namespace weft::cli
