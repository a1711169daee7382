// The user's choices for the device. A caller that reads the environment fills this in; the device
// itself never reads the environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "device/engine.h"
#include "device/limits.h"
#include "faults/adapter.h"
#include "faults/link.h"
#include "faults/rules.h"

namespace weft::device {

enum class Personality : std::uint8_t {
  iwarp,  // an RNIC, connected by rdma_cm
  roce,   // an InfiniBand device on Ethernet, as most programs expect: connected by GID and QPN
  ib,     // as roce, but the link layer is InfiniBand: connected by LID or GID and QPN
};

// The addresses of this host that become GIDs.
enum class GidTable : std::uint8_t {
  standard,  // one in roce, all in iwarp
  one,       // the first IPv4 address of an interface other than loopback
  all,
};

// Whether connections between two processes of one user on one host leave TCP (device/local).
enum class SameHost : std::uint8_t {
  off,
  automatic,  // where it is possible; otherwise they stay on TCP
  required,   // connections that would stay on TCP fail
  staged,     // as automatic, but as if the kernel let no process reach the memory of another one
};

// How ends of connections in one process access each other's memory.
enum class OwnMemory : std::uint8_t {
  directly,  // by loads and stores
  shared,    // as ends in two processes do: directly only where both map it
  unseen,    // by the kernel alone: debug registers, which weft run --check has, notice nothing
};

// Which processes a process lets reach its memory, where Yama asks for that (local/ptracer.h).
enum class PtracerMode : std::uint8_t {
  peer,  // the first peer that is connected within the host
  any,   // all processes of the user
  off,   // as the program has it
};

// How ends of connections within the host reach each other's memory.
struct MemoryReach {
  PtracerMode ptracer = PtracerMode::peer;
  bool own_memory = true;  // WEFT_OWN_MEMORY
  bool checked = false;  // WEFT_CHECK is on: it takes each store of this process for the program's

  [[nodiscard]] OwnMemory own() const {
    if (checked) return OwnMemory::unseen;
    return own_memory ? OwnMemory::directly : OwnMemory::shared;
  }
};

// Which allocations of the program are made where processes of this host can map them, if `weft
// run` has loaded the shared heap.
enum class SharedHeapMode : std::uint8_t {
  off,
  aligned,  // those with the alignment of a page
  all,      // large ones as well
};

struct SharedHeapSettings {
  SharedHeapMode mode = SharedHeapMode::aligned;
  std::size_t limit_bytes = limits::shared_heap_bytes;
};

// What peers that are not connected yet can make the device hold: see limits.h.
struct StrangerLimits {
  std::size_t half_open = limits::max_half_open;
  std::size_t refused = limits::max_refused;
  std::uint64_t first_byte_ns = limits::first_byte_ns;
  std::optional<std::uint64_t> handshake_ns;  // no value: as the listener has it
};

// Who drives the device.
struct ProgressSettings {
  ProgressMode mode = ProgressMode::automatic;
  std::optional<int> priority;  // the nice value of the progress thread; no value: the program's
};

struct DisconnectTimes {
  // After rdma_disconnect(3): within it the peer may still prove what was sent before.
  std::uint64_t proofs_ns = limits::closing_ns;
  // How long the end by the peer is not reported while the program has not polled a success.
  std::uint64_t unpolled_ns = limits::unpolled_ns;
};

struct Settings {
  Personality personality = Personality::roce;
  ProgressSettings progress;
  GidTable gids = GidTable::standard;
  std::string address;       // the device's address; empty: all local ones
  bool acknowledge = true;   // completions mean "placed in the peer's memory"
  bool crc = true;           // ask for MPA CRCs
  bool strict_crc = true;    // place no data before its CRC is verified
  std::string capture_path;  // pcapng file; empty: none
  std::string stats_path;    // file for counters; empty: none
  std::string trace_path;    // file for the spans of requests; empty: none
  SameHost same_host = SameHost::automatic;
  MemoryReach reach;
  SharedHeapSettings shared_heap;
  bool verbose = false;           // print how each connection moves its data
  bool other_users = false;       // accept pairings from processes of other users of this host
  bool strict = false;            // behave like adapters where the device could do better
  bool responder_first = false;   // send to initiators that should have sent first and did not
  std::uint16_t port_offset = 0;  // added to every rdma_cm port
  faults::Rules faults;           // what fails on purpose
  faults::Link link;              // a slower network
  faults::AdapterLimits adapter;  // what the device shows and grants, where that is less
  StrangerLimits strangers;
  // The bytes for Sends that find no receive, per connection in roce.
  std::uint32_t hold_bytes = limits::hold_bytes;
  // The minimum time that requests wait for a peer that refuses or does not exist.
  std::uint64_t min_retry_time_ns = limits::min_retry_time_ns;
  DisconnectTimes disconnect;
};

}  // namespace weft::device
