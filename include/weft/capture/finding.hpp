// Something in the traffic that its protocol forbids, or that costs time: one sentence, and where.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/capture/traffic.hpp"

namespace weft::capture {

struct Finding {
  // A stable name for programs, such as "rpc-unanswered"; of static storage.
  std::string_view kind;
  ConnectionId connection = 0;
  std::string sentence;
  // Where: frames as Wireshark numbers them, and their times; ascending by frame.
  std::vector<Stamp> stamps;
};

class FindingSink {
 public:
  virtual ~FindingSink() = default;
  // Valid during the call only.
  virtual void on_finding(const Finding& finding) = 0;
};

}  // namespace weft::capture
