// Status: the state of a message that was sent.
#pragma once

#include <cstdint>

namespace weft::message {

enum class Status : std::uint8_t {
  waiting,    // for credits, for its Send, or to be fetched by the peer: its memory is in use
  sent,       // its memory may be used again
  delivered,  // the peer's callback for it has returned
  failed,     // it is unknown whether it has arrived; its memory may be used again
};

// The name of the status, as above.
[[nodiscard]] constexpr const char* to_string(Status status) {
  constexpr const char* names[] = {"waiting", "sent", "delivered", "failed"};
  return names[static_cast<std::uint8_t>(status)];
}

}  // namespace weft::message
