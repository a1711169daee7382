// `weft dissect`: explains RDMA traffic from capture files or an interface.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct DissectOptions {
  std::vector<std::string> files;
  std::string live;
  std::string bpf;
  std::string extract;
  std::string html;
  bool follow = false;
  bool separate = false;
  bool operations = false;
  bool connections = false;
  bool rpc = false;
  bool findings = false;
  bool json = false;
  bool csv = false;
  std::string connection;
  std::string queue_pair;
  std::string key;
  std::string time;
  std::string opcode;
  std::string xid;
};

// Returns the exit status: 0, 1 if there are findings, 2 for wrong options or input that cannot be
// read.
int dissect(const DissectOptions& options);

}  // namespace weft::cli
