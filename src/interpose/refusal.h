// Counts the clients that this library closes before the device knows them.
#pragma once

#include "interpose/first_bytes.h"
#include "provider/refusal.h"

namespace weft::interpose {

using provider::Refusal;

// Adds one to the statistics of this process (WEFT_STATS). Thread-safe.
void count_refusal(Refusal why);

// Why a client is refused that speaks nothing that is served, or has ended its side too early.
[[nodiscard]] inline Refusal refusal_of(const FirstBytes& found) {
  return found.count == 0 ? Refusal::closed : Refusal::malformed;
}

}  // namespace weft::interpose
