// `weft dissect`: explains RDMA traffic from capture files or an interface.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace weft::cli {

// What is listed, line by line. If nothing is, there is a summary.
struct DissectLists {
  bool operations = false;
  bool connections = false;
  bool rpc = false;
  bool commands = false;  // of storage protocols
  bool findings = false;
  bool management = false;  // management datagrams of InfiniBand

  [[nodiscard]] int count() const {
    return int{operations} + int{connections} + int{rpc} + int{commands} + int{findings} +
           int{management};
  }
};

struct DissectOptions {
  std::vector<std::string> files;
  std::string live;
  std::string bpf;
  std::string extract;
  std::string html;
  std::string export_pcap;
  bool follow = false;
  bool separate = false;
  DissectLists lists;
  bool json = false;
  bool csv = false;
  std::string connection;
  std::string queue_pair;
  std::string key;
  std::string time;
  std::string opcode;
  std::string xid;
  std::string severity;
  std::string filter;
  std::size_t slowest = 0;
  std::vector<std::string> clock_offsets;
  std::vector<std::string> globs;
};

// Loads libweft-dissect.so from the folder of the drop-in libraries and calls weft_dissect() there.
// Returns the exit status: 0, 1 if there are findings other than notes, 2 for wrong options, for
// input that cannot be read or was not read to the end, or if the library is missing.
int dissect(const DissectOptions& options);

}  // namespace weft::cli

// The only symbol of libweft-dissect.so. `version` is the program's: the library must be of the
// same version, as both are built with the same DissectOptions. Returns what dissect() returns.
extern "C" [[gnu::visibility("default")]] int weft_dissect(
    const char* version, const weft::cli::DissectOptions& options);
