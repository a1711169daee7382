// What the two ends of a connection without rdma_cm tell each other: the private data of the MPA
// frames that open it. Only Weft speaks this; the frames around it are standard.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

// Why a request for a connection is turned down.
enum class HelloAnswer : std::uint16_t {
  accepted = 0,     // in a request: nothing
  not_yet = 1,      // the queue pair exists and is not ready to receive: ask again
  crossed = 2,      // a request in the other direction is under way and will do
  refused = 3,      // nobody here expects this peer on that queue pair
  bad_version = 4,  // a hello that this side does not understand
};

struct Hello {
  static constexpr std::size_t bytes = 48;
  static constexpr std::uint16_t current_version = 1;

  // What an end can do; both must say so for it to count.
  static constexpr std::uint32_t can_send_immediate = 1U << 0;  // announced by a tagged message
  static constexpr std::uint32_t can_hold_sends = 1U << 1;      // a Send that finds no receive
  static constexpr std::uint32_t can_count_executed = 1U << 2;  // into the peer's control region
  // Not a matter of what it can: the queue pair is of an unreliable connection. Both are, or none.
  static constexpr std::uint32_t unreliable = 1U << 3;

  std::uint16_t version = current_version;
  HelloAnswer answer = HelloAnswer::accepted;
  std::uint32_t source_qpn = 0;
  std::uint32_t destination_qpn = 0;
  std::uint32_t send_psn = 0;  // 0 where the sender is not ready to send yet
  std::uint32_t receive_psn = 0;
  std::uint32_t generation = 0;  // of the sender's attempts to connect this queue pair, rising
  std::uint32_t capabilities = 0;
  std::uint32_t control_stag = 0;         // where the peer writes what it executed and grants
  std::uint32_t hold_capacity_bytes = 0;  // of Sends that find no receive

  // A later version may be longer; what is known of it comes first. Fails with bad_key for private
  // data that is no hello, and with truncated for a short one.
  [[nodiscard]] static Result<Hello, WireError> parse(Bytes data);
  // Writes `bytes` bytes.
  void emit(MutableBytes out) const;
  bool operator==(const Hello&) const = default;
};

}  // namespace weft::wire
