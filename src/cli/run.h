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
  std::string trace;
  std::vector<std::string> faults;  // rules, or @FILE
  std::string adapter;
  std::string check;  // empty, "true" or "fatal"
  std::string check_report;
  std::string check_status;
  std::string check_suppressions;
  std::string link;
  std::string personality;
  std::string progress;
  std::string priority;
  std::string port_offset;
  std::string same_host;
  std::string ptracer;
  std::string shared_heap;
  std::string sockets;  // empty, "true" or "fallback"
  bool no_acknowledge = false;
  bool no_crc = false;
  bool verbose = false;
  bool quiet = false;
};

// Replaces this process by the program, which so has its own signals and exit status. Returns only
// if that fails, with the exit status: 2 for wrong options, 126 and 127 as in shells.
int run(const RunOptions& options);

}  // namespace weft::cli
