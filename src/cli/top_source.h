// Finds the processes of this user that have a device, and asks them for their counters
// (live/socket_name.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/descriptor.h"

namespace weft::cli {

// A device of a process, and its last answer.
struct TopAnswer {
  pid_t pid = 0;
  std::string socket;     // its name, which differs for each device
  std::string program;    // /proc/PID/comm
  bool answered = false;  // this time
  std::string why;        // of one that has not answered: "stopped", "idle", "silent"
  nlohmann::json report;  // null where it has not answered
};

// Not thread-safe. The connections stay, because processes measure latencies only meanwhile.
class TopSource {
 public:
  // `pids`: the processes to ask; empty: all.
  explicit TopSource(std::vector<int> pids) : pids_(std::move(pids)) {}

  // Asks all devices, and waits for their answers until `limit` is over: a stopped process gives
  // none. Throws where /proc/net/unix cannot be read.
  [[nodiscard]] std::vector<TopAnswer> ask(std::chrono::milliseconds limit);

 private:
  struct Device {
    pid_t pid = 0;         // in the namespace of this process, as far as it has one there
    bool visible = false;  // /proc/PID is this process
    Descriptor socket{};
    bool asked = false;  // its answer is not complete
    std::string text{};  // what has arrived of it
  };

  void find();
  void connect(const std::string& name, pid_t named, const std::string& inode);
  [[nodiscard]] bool is_asked_for(pid_t pid) const;
  void keep(const std::string& name, Device device);
  void collect(std::chrono::steady_clock::time_point until);
  [[nodiscard]] static bool read(Device& device);
  [[nodiscard]] TopAnswer answer(const std::string& name, Device& device);

  std::vector<int> pids_;
  std::map<std::string, Device> devices_;  // by the name of the socket
  std::set<std::string> others_;           // names that are left out for good
};

}  // namespace weft::cli
