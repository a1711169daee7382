// The options of the embedded device, in code. The WEFT_ environment variables set the same options
// for programs that do not call configure().
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "weft/export.hpp"

namespace weft {

// Limits of a device. No value: the default. A value out of range is Error(EINVAL), whose text and
// detail() name the field, as in "limits.max_qp".
struct DeviceLimits {
  // What the device shows to programs and grants them, to test how they deal with a smaller
  // adapter: the list of WEFT_ADAPTER, which `weft help faults` describes. Up to what the device
  // has.
  std::optional<std::uint64_t> max_qp{};          // 0 to 16384 queue pairs at a time
  std::optional<std::uint64_t> max_qp_wr{};       // 1 to 16384 requests of a queue
  std::optional<std::uint64_t> max_sge{};         // 1 to 32 pieces of a request
  std::optional<std::uint64_t> max_inline{};      // 0 to 1024 bytes
  std::optional<std::uint64_t> max_cq{};          // 1 to 65536 completion queues
  std::optional<std::uint64_t> max_cqe{};         // 1 to 4194304 entries of one
  std::optional<std::uint64_t> max_mr{};          // 1 to 1048576 memory regions
  std::optional<std::uint64_t> max_mr_size{};     // 1 to 2^47 bytes of one
  std::optional<std::uint64_t> max_mw{};          // 0 to 1048576 memory windows
  std::optional<std::uint64_t> max_pd{};          // 1 to 65536 protection domains
  std::optional<std::uint64_t> max_srq{};         // 0 to 16384 shared receive queues
  std::optional<std::uint64_t> max_srq_wr{};      // 1 to 16384 receives of one
  std::optional<std::uint64_t> max_ah{};          // 0 to 1048576 address handles
  std::optional<std::uint64_t> max_qp_rd_atom{};  // 0 to 127 reads and atomics of a queue pair
  std::optional<bool> atomics{};                  // false: none
  std::optional<bool> immediates{};               // false: none

  // What strangers and peers can make the device hold, and for how long; docs/security.md has the
  // reasons. The numbers are bounded by the limit on descriptors as well (RLIMIT_NOFILE). The
  // variable WEFT_LIMITS sets these.
  std::optional<std::uint32_t> half_open{};  // 4 to 65536 connections without their MPA request
  std::optional<std::uint32_t> refused{};    // 4 to 65536 refused ones that linger; and as many
                                             // requests of strangers that wait for their answer
  std::optional<std::chrono::milliseconds> first_byte{};  // of an MPA request; 1 ms to 1 h
  std::optional<std::chrono::milliseconds> handshake{};   // the whole request; 1 ms to 1 h
  // How long requests wait at least for a peer that does not exist, refuses or does not answer,
  // whatever `timeout` and `retry_cnt` of the queue pair are. 1 ms to 1 h.
  std::optional<std::chrono::milliseconds> unanswered{};
};

// `weft help environment` describes each option by the name of its variable, which is given here.
struct DeviceOptions {
  enum class Personality : std::uint8_t { roce, iwarp, ib };
  enum class Progress : std::uint8_t { automatic, thread, manual };
  enum class Gids : std::uint8_t { standard, one, all };
  enum class SameHost : std::uint8_t { automatic, off, required, staged };
  enum class Ptracer : std::uint8_t { peer, any, off };

  std::string address{};                        // WEFT_ADDR; empty: the addresses of this host
  Gids gids = Gids::standard;                   // WEFT_GIDS; standard: one with roce
  Personality personality = Personality::roce;  // WEFT_PERSONALITY
  Progress progress = Progress::automatic;      // WEFT_PROGRESS
  SameHost same_host = SameHost::automatic;     // WEFT_SAME_HOST
  Ptracer ptracer = Ptracer::peer;              // WEFT_PTRACER
  bool own_memory = true;                       // WEFT_OWN_MEMORY
  bool crc = true;                              // WEFT_CRC
  bool strict_crc = true;                       // WEFT_CRC_STRICT
  bool acknowledge = true;                      // WEFT_ACK
  bool strict = false;                          // WEFT_STRICT: limits as those of adapters
  bool other_users = false;                     // WEFT_OTHER_USERS
  bool responder_first = false;                 // WEFT_RESPONDER_FIRST
  bool verbose = false;                         // WEFT_VERBOSE
  std::uint16_t port_offset = 0;                // WEFT_PORT_OFFSET
  std::optional<int> priority{};                // WEFT_PRIORITY: -20 to 19; no value: the program's
  std::string capture{};                        // WEFT_CAPTURE: the path of a file
  std::string statistics{};                     // WEFT_STATS: the path of a file
  std::string trace{};                          // WEFT_TRACE: the path of a file
  std::string faults{};                         // WEFT_FAULT: rules of `weft help faults`
  std::string adapter{};                        // WEFT_ADAPTER: a list of `weft help faults`
  std::string link{};                           // WEFT_LINK: a list of `weft help faults`
  // Bytes of one connection for Sends that find no receive, with roce: 0 to 2^30; no value: 2^20.
  std::optional<std::uint32_t> hold_bytes{};
  DeviceLimits limits{};  // override those of `adapter`
  // WEFT_CHECK: 1 or fatal; empty or 0: none. Checks are those of the whole process, and begin
  // with the first call that names them. They need libweft.
  std::string check{};

  // The options that the environment of this process sets; defaults for the others. Throws
  // Error(EINVAL) that names the first variable with a wrong value.
  [[nodiscard]] WEFT_API static DeviceOptions from_environment();
};

// Sets the options of the embedded device that the whole process shares: of devices(), and of all
// connections, messages and streams. The environment then sets none of them. To be called before
// the first use of the device, again if it needs to be changed. Throws Error: EBUSY after the first
// use, EINVAL for a value that is out of range or cannot be read; ErrorDetail::attribute names the
// option. Whether this host has the address, and files can be written, is known at the first use.
WEFT_API void configure(const DeviceOptions& options);

}  // namespace weft
