// The parts of Weft's message and stream protocols that show credits: docs/message-protocol.md and
// docs/stream-protocol.md. The analysis reads them with code of its own, because it must be able to
// find errors in the layers that write them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace weft::capture {

// The private data of a connection. Both protocols have these fields in the same places.
struct CreditGreeting {
  static constexpr std::uint32_t message_magic = 0x5745464D;  // "WEFM"
  static constexpr std::uint32_t stream_magic = 0x57454653;   // "WEFS"

  std::uint32_t magic = 0;
  std::uint8_t version = 0;
  std::uint16_t receives = 0;
  std::uint32_t ring_bytes = 0;  // of a stream

  // The connection manager of InfiniBand drops zeros at the end of private data: missing bytes
  // count as zero.
  [[nodiscard]] static CreditGreeting of(Bytes private_data);
};

// The beginning of a frame of the message protocol.
struct CreditFrame {
  static constexpr std::size_t start_bytes = 4;

  std::uint8_t kind = 0;
  std::uint16_t granted = 0;

  // `frame` has start_bytes or more.
  [[nodiscard]] static CreditFrame of(Bytes frame);
};

// The word of a message of the stream protocol; `message` has four bytes or more.
[[nodiscard]] std::uint32_t stream_word_of(Bytes message);

}  // namespace weft::capture
