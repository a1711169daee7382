// A finding: traffic that violates its protocol, or that costs time. It has one sentence and the
// frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/capture/connection.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

enum class Severity : std::uint8_t {
  note,     // unusual, but it costs next to nothing
  warning,  // costs time, or makes the results incomplete
  error,    // a protocol is violated, or something failed
};
// Returns "note", "warning" or "error". The text is in static storage.
[[nodiscard]] WEFT_API const char* to_string(Severity severity);

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
  // Set if it differs from that of the kind; see severity_of().
  std::optional<Severity> severity{};

  static constexpr std::size_t max_keys = 256;
};

// Returns the severity of the finding, or of its kind.
[[nodiscard]] WEFT_API Severity severity_of(const Finding& finding);

// Returns whether the capture of the connection is good enough for the finding: without one
// direction, nothing is known about answers.
[[nodiscard]] WEFT_API bool is_supported(const Finding& finding, const Connection& connection);

class FindingSink {
 public:
  virtual ~FindingSink() = default;
  // `finding` is valid during the call only.
  virtual void on_finding(const Finding& finding) = 0;
};

}  // namespace weft::capture
