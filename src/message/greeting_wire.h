// The private data of a message connection: with a request to connect, its acceptance, or its
// rejection. docs/message-protocol.md is the specification.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"

namespace weft::message::detail {

inline constexpr std::uint8_t protocol_version = 1;

// What one side accepts from the other.
struct Terms {
  std::uint16_t credits = 0;
  std::uint32_t eager_bytes = 0;
  std::uint64_t max_message_bytes = 0;
  bool joined = false;  // frames of several messages as well
  friend bool operator==(const Terms&, const Terms&) = default;
};

enum class Reason : std::uint8_t {
  none = 0,  // the transport rejected: no process listens on the port
  version = 1,
  malformed = 2,
  no_handler = 3,
  too_many = 4,
  application = 5,
};

struct ParsedGreeting;

// Sent with a request and with its acceptance.
struct MessageGreeting {
  static constexpr std::size_t fixed_bytes = 21;

  Terms terms;
  std::vector<std::byte> private_data;  // of the application; 255 bytes at most

  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  // Ignores bytes beyond the private data: transports may append zeros.
  [[nodiscard]] static ParsedGreeting parse(Bytes bytes);
  friend bool operator==(const MessageGreeting&, const MessageGreeting&) = default;
};

// A greeting, or the reason to reject its sender. `reason` is none if and only if there is a
// greeting.
struct ParsedGreeting {
  std::optional<MessageGreeting> greeting;
  Reason reason = Reason::none;
};

// Sent with a rejection.
struct Rejection {
  static constexpr std::size_t fixed_bytes = 11;

  Reason reason = Reason::none;
  std::uint32_t limit = 0;              // with too_many: how many connections there may be
  std::vector<std::byte> private_data;  // of the application; 255 bytes at most
  std::uint8_t version = protocol_version;

  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  // Returns a rejection with `reason` none if the bytes are not of this protocol. A cut private
  // data is left out, because the reason alone is of use.
  [[nodiscard]] static Rejection parse(Bytes bytes);
  friend bool operator==(const Rejection&, const Rejection&) = default;
};

}  // namespace weft::message::detail
