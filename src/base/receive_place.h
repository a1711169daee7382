// ReceivePlace: memory that a poll may place a message in, instead of the memory of its receive.
#pragma once

#include <cstddef>

namespace weft {

struct ReceivePlace {
  std::byte* at = nullptr;  // null after the poll: another message waits for a place
  std::size_t bytes = 0;
  // Which completion of the poll belongs to the message that lies there; -1: none.
  int used = -1;
};

}  // namespace weft
