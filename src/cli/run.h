// `weft run`: starts an unmodified program on the embedded device.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct RunOptions {
  std::vector<std::string> command;  // the program and its arguments
  std::string address;
  std::string capture;
  std::string stats;
  std::string personality;
  std::string progress;
  std::string port_offset;
  std::string sockets;  // empty, "true" or "fallback"
  bool no_acknowledge = false;
  bool no_crc = false;
  bool quiet = false;
};

// Becomes the program: signals and exit status are its own. Returns only where that fails, with the
// exit status: 2 for wrong options, 126 and 127 as shells have it.
int run(const RunOptions& options);

}  // namespace weft::cli
