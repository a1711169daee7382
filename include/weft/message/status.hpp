// What can become of a message.
#pragma once

#include <cstdint>

namespace weft::message {

enum class Status : std::uint8_t {
  waiting,    // for credits, or to be fetched: its memory is in use
  sent,       // its memory may be used again
  delivered,  // the peer's callback for it has returned
  failed,  // it is not known to have arrived, and where it was not sent, its memory is free again
};

[[nodiscard]] constexpr const char* to_string(Status status) {
  constexpr const char* names[] = {"waiting", "sent", "delivered", "failed"};
  return names[static_cast<std::uint8_t>(status)];
}

}  // namespace weft::message
