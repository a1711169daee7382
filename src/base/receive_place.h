// ReceivePlace: memory that a poll may place a message in, instead of the memory of its receive.
#pragma once

#include <cstddef>

namespace weft {

struct ReceivePlace {
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  // After the poll. Which of its completions belongs to the message that lies there; -1: none.
  int used = -1;
  bool more = false;  // another message waits for a place
};

}  // namespace weft
