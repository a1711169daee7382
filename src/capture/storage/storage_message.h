// What the decoders of storage protocols pass to the tracker: one message, decoded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "capture/findings/allowance.h"
#include "weft/bytes.hpp"
#include "weft/capture/storage.hpp"

namespace weft::capture {

// The bytes of a message up to the first one that was not captured, and its size on the wire.
struct StorageBytes {
  Bytes bytes;
  std::uint64_t wire_size = 0;  // at least bytes.size()
};

// The frames with the first and the last part of a message.
struct Extent {
  Stamp first;
  Stamp last;
};

struct StorageAnswer {
  std::uint64_t id = 0;
  std::uint32_t status = 0;
  bool failed = false;
  bool interim = false;  // the final answer follows
  std::string text;
  LimitWait waited{};  // its sender waited for credits
};

// A command, an answer, or neither: a message that only counts.
struct StorageMessage {
  std::optional<StorageCommand> command;
  std::optional<StorageAnswer> answer;
};

}  // namespace weft::capture
