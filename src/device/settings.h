// What a user may choose about the device. Who reads the environment fills this in; the device
// never looks at the environment itself.
#pragma once

#include <cstdint>
#include <string>

#include "device/engine.h"
#include "device/limits.h"

namespace weft::device {

enum class Personality : std::uint8_t {
  iwarp,  // what the device is: an RNIC, connected by rdma_cm
  roce,   // what most programs expect: InfiniBand verbs over Ethernet, connected by GID and QPN
};

// Which addresses of this host are GIDs of the device.
enum class GidTable : std::uint8_t {
  standard,  // one in roce, all in iwarp
  one,       // the first IPv4 address that is not loopback's
  all,
};

struct Settings {
  Personality personality = Personality::roce;
  ProgressMode progress = ProgressMode::automatic;
  GidTable gids = GidTable::standard;
  std::string address;            // the device's address; empty: all local ones
  bool acknowledge = true;        // completions mean "placed at the peer"
  bool crc = true;                // ask for MPA CRCs
  bool strict_crc = true;         // place nothing before its CRC is known to be right
  std::string capture_path;       // pcapng file; empty: none
  std::string stats_path;         // file for counters; empty: none
  std::uint16_t port_offset = 0;  // added to every rdma_cm port
  // In roce, of one connection: Sends that found no receive. Not for users to choose.
  std::uint32_t hold_bytes = limits::hold_bytes;
  // Work waits at least so long for a peer that refuses or is not there; not for users to choose.
  std::uint64_t least_patience_ns = limits::least_patience_ns;
};

}  // namespace weft::device
