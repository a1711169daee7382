// A finding: traffic that violates its protocol, or that costs time. It has one sentence and the
// frames.
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
  // A stable name for programs, such as "rpc-unanswered", in static storage.
  std::string_view kind;
  ConnectionId connection = 0;
  std::string sentence;
  // The frames, numbered as in Wireshark, and their times; ascending by frame.
  std::vector<Stamp> stamps;
  // The XID, if the finding is about one RPC.
  std::optional<std::uint32_t> xid{};
  // The keys of the memory involved: of that RPC, or of the refused request. At most max_keys are
  // stored.
  std::vector<std::uint32_t> keys{};

  static constexpr std::size_t max_keys = 256;
};

class FindingSink {
 public:
  virtual ~FindingSink() = default;
  // `finding` is valid during the call only.
  virtual void on_finding(const Finding& finding) = 0;
};

}  // namespace weft::capture
