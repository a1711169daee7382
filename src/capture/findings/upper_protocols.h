// Recognises the upper protocols SMB Direct (MS-SMBD) and NVMe over RDMA, and counts their messages
// by type. Nothing on the wire names the protocol, so a connection is recognised only by messages
// that are correct in every field that can be checked.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>

#include "base/bytes.h"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

enum class UpperProtocol : std::uint8_t { smb_direct, nvme };
[[nodiscard]] const char* to_string(UpperProtocol protocol);

// Counts by name; the names are in static storage: "negotiate request", "read", "completion".
using MessageCounts = std::map<std::string_view, std::uint64_t>;

struct UpperTraffic {
  UpperProtocol protocol = UpperProtocol::smb_direct;
  MessageCounts messages;
};

class UpperProtocols final : public TrafficSink {
 public:
  void on_send(const Origin& origin, const SendPart& part) override;
  void on_forget(ConnectionId connection) override { states_.erase(connection); }

  // Returns nullptr if no protocol was recognised.
  [[nodiscard]] const UpperTraffic* of(ConnectionId connection) const;

 private:
  // What is known about a connection that may be NVMe.
  struct NvmeState {
    bool admin = false;  // its Connect was captured and has queue id 0
    bool input_output = false;
    // Ids of the last messages that look like commands. Completions with the same ids confirm them.
    std::array<std::uint16_t, 8> commands{};
    std::size_t next_command = 0;
    std::size_t commands_seen = 0;
    unsigned matched = 0;
  };
  struct State {
    bool recognised = false;
    bool given_up = false;
    unsigned looked_at = 0;
    UpperTraffic traffic;
    NvmeState nvme;
  };

  static void recognise(State& state, const Origin& origin, const SendPart& part);
  static bool recognise_nvme(State& state, const Origin& origin, const SendPart& part);
  static void count(State& state, const Origin& origin, const SendPart& part);

  ConnectionMap<State> states_;
};

}  // namespace weft::capture
