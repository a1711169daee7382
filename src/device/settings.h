// What a user may choose about the device. Who reads the environment fills this in; the device
// never looks at the environment itself.
#pragma once

#include <cstdint>
#include <string>

#include "device/engine.h"

namespace weft::device {

enum class Personality : std::uint8_t {
  iwarp,  // what the device is: an RNIC, connected by rdma_cm
};

struct Settings {
  Personality personality = Personality::iwarp;
  ProgressMode progress = ProgressMode::automatic;
  std::string address;            // the device's address; empty: all local ones
  bool acknowledge = true;        // completions mean "placed at the peer"
  bool crc = true;                // ask for MPA CRCs
  bool strict_crc = true;         // place nothing before its CRC is known to be right
  std::string capture_path;       // pcapng file; empty: none
  std::uint16_t port_offset = 0;  // added to every rdma_cm port
};

}  // namespace weft::device
