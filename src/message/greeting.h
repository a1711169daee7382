// What goes along with a request to connect, its acceptance, or its rejection:
// docs/message-protocol.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"

namespace weft::message::detail {

inline constexpr std::uint8_t protocol_version = 1;

// What one side takes from the other.
struct Terms {
  std::uint16_t credits = 0;
  std::uint32_t eager_bytes = 0;
  std::uint64_t max_message_bytes = 0;
  bool joined = false;  // frames of several messages as well
  friend bool operator==(const Terms&, const Terms&) = default;
};

enum class Reason : std::uint8_t {
  none = 0,  // the transport's: nobody listens
  version = 1,
  malformed = 2,
  nobody = 3,
  too_many = 4,
  application = 5,
};

struct Greeting {
  static constexpr std::size_t fixed_bytes = 21;

  Terms terms;
  std::vector<std::byte> private_data;

  [[nodiscard]] std::vector<std::byte> to_bytes() const;
};

struct Rejection {
  static constexpr std::size_t fixed_bytes = 11;

  Reason reason = Reason::none;
  std::uint32_t limit = 0;
  std::vector<std::byte> private_data;
  std::uint8_t version = protocol_version;

  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  // `reason` is `none` where the bytes are not of this protocol.
  [[nodiscard]] static Rejection parse(Bytes bytes);
};

// The greeting, or why it must be rejected.
struct Read {
  std::optional<Greeting> greeting;
  Reason reason = Reason::none;
};
[[nodiscard]] Read read_greeting(Bytes bytes);

}  // namespace weft::message::detail
