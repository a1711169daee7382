// The options of the embedded device, in code. The WEFT_ environment variables set the same options
// for programs that do not call configure().
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "weft/export.hpp"

namespace weft {

// `weft help environment` describes each option by the name of its variable, which is given here.
struct DeviceOptions {
  enum class Personality : std::uint8_t { roce, iwarp, ib };
  enum class Progress : std::uint8_t { automatic, thread, manual };
  enum class Gids : std::uint8_t { standard, one, all };
  enum class SameHost : std::uint8_t { automatic, off, required };

  std::string address{};                        // WEFT_ADDR; empty: the addresses of this host
  Gids gids = Gids::standard;                   // WEFT_GIDS; standard: one with roce
  Personality personality = Personality::roce;  // WEFT_PERSONALITY
  Progress progress = Progress::automatic;      // WEFT_PROGRESS
  SameHost same_host = SameHost::automatic;     // WEFT_SAME_HOST
  bool crc = true;                              // WEFT_CRC
  bool strict_crc = true;                       // WEFT_CRC_STRICT
  bool acknowledge = true;                      // WEFT_ACK
  bool strict = false;                          // WEFT_STRICT: limits as those of adapters
  bool other_users = false;                     // WEFT_OTHER_USERS
  bool responder_first = false;                 // WEFT_RESPONDER_FIRST
  bool verbose = false;                         // WEFT_VERBOSE
  std::uint16_t port_offset = 0;                // WEFT_PORT_OFFSET
  std::string capture{};                        // WEFT_CAPTURE: the path of a file
  std::string statistics{};                     // WEFT_STATS: the path of a file
  std::string trace{};                          // WEFT_TRACE: the path of a file
  std::string faults{};                         // WEFT_FAULT: rules of `weft help faults`
  std::string adapter{};                        // WEFT_ADAPTER: a list of `weft help faults`
  std::string link{};                           // WEFT_LINK: a list of `weft help faults`
  // Bytes of one connection for Sends that find no receive, with roce; no value: the default.
  std::optional<std::uint32_t> hold_bytes{};

  // The options that the environment of this process sets; defaults for the others. Throws
  // Error(EINVAL) that names the first variable with a wrong value.
  [[nodiscard]] WEFT_API static DeviceOptions from_environment();
};

// Sets the options of the embedded device that the whole process shares: of devices(), and of all
// connections, messages and streams. The environment then sets none of them. To be called before
// the first use of the device, again if it needs to be changed. Throws Error: EBUSY after the first
// use, EINVAL for faults, an adapter or a link that cannot be read. Other options are checked at
// the first use.
WEFT_API void configure(const DeviceOptions& options);

}  // namespace weft
