// The hello is the private data of the MPA frames that open a connection without rdma_cm. It
// carries what the two queue pairs need to know of each other. Only Weft uses it; the frames around
// it are standard.
//
//   0  4  "Weft"
//   4  2  version, 1; 2 for a queue pair of an extended connection (XRC)
//   6  2  answer
//   8  4  QPN of the sender
//  12  4  QPN of the receiver
//  16  4  PSN that the sender sends with first
//  20  4  PSN that the sender expects first
//  24  4  generation
//  28  4  capabilities
//  32  4  control STag
//  36  4  hold capacity in bytes
//  40  8  0, ignored
//
// All in network order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

// The outcome of a request for a connection.
enum class HelloAnswer : std::uint16_t {
  accepted = 0,     // without meaning in a request
  not_yet = 1,      // the queue pair exists and is not ready to receive: try again
  crossed = 2,      // a request in the other direction is under way and is used instead
  refused = 3,      // no queue pair with that number expects this peer
  bad_version = 4,  // this side does not support the version of the hello
};

struct Hello {
  static constexpr std::size_t bytes = 48;
  static constexpr std::uint16_t current_version = 1;
  // Devices that know version 1 only would take such a queue pair for a plain one, so they are to
  // refuse it.
  static constexpr std::uint16_t extended_version = 2;

  // Capabilities. One is used if both ends have it.
  static constexpr std::uint32_t can_send_immediate = 1U << 0;  // announced by a tagged message
  static constexpr std::uint32_t can_hold_sends = 1U << 1;      // a Send that finds no receive
  static constexpr std::uint32_t can_count_executed = 1U << 2;  // into the peer's control region
  // Not a capability: the queue pair is of an unreliable connection. Both ends must agree.
  static constexpr std::uint32_t unreliable = 1U << 3;
  // The queue pair is of an extended connection, as its sending or its receiving end. Its peer is
  // of the other kind.
  static constexpr std::uint32_t extended_sender = 1U << 5;
  static constexpr std::uint32_t extended_receiver = 1U << 6;
  // The sender is ready to send, and `send_psn` is its own, even if it is 0.
  static constexpr std::uint32_t has_send_psn = 1U << 4;

  std::uint16_t version = current_version;
  HelloAnswer answer = HelloAnswer::accepted;
  std::uint32_t source_qpn = 0;
  std::uint32_t destination_qpn = 0;
  std::uint32_t send_psn = 0;  // 0 if the sender is not ready to send yet
  std::uint32_t receive_psn = 0;
  std::uint32_t generation = 0;  // rises with each attempt of the sender to connect this queue pair
  std::uint32_t capabilities = 0;
  std::uint32_t control_stag = 0;         // where the peer writes its control words
  std::uint32_t hold_capacity_bytes = 0;  // of Sends that find no receive

  // `extended_sender`, `extended_receiver`, or 0.
  [[nodiscard]] std::uint32_t extended() const {
    return capabilities & (extended_sender | extended_receiver);
  }
  [[nodiscard]] static std::uint16_t version_for(std::uint32_t extended) {
    return extended != 0 ? extended_version : current_version;
  }
  // Whether the version is known here, and is that of a queue pair of this kind.
  [[nodiscard]] bool has_known_version() const { return version == version_for(extended()); }

  // Accepts later versions, which may be longer: they begin with these fields. Fails with bad_key
  // for private data that is not a hello, and with truncated for one that is cut.
  [[nodiscard]] static Result<Hello, WireError> parse(Bytes data);
  // Writes `bytes` bytes.
  void emit(MutableBytes out) const;
  bool operator==(const Hello&) const = default;
};

}  // namespace weft::wire
