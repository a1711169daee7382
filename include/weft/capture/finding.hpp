// Something in the traffic that its protocol forbids, or that costs time: one sentence, and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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
  // Of the RPC, where it is about one.
  std::optional<std::uint32_t> xid{};
  // Memory that it is about: of that RPC, or where a request was refused. The first max_keys.
  std::vector<std::uint32_t> keys{};

  static constexpr std::size_t max_keys = 256;
};

class FindingSink {
 public:
  virtual ~FindingSink() = default;
  // Valid during the call only.
  virtual void on_finding(const Finding& finding) = 0;
};

}  // namespace weft::capture
