// Who has connected to a TCP port on which the program listens: another of streams, or a client of
// plain TCP. They are told apart by their first bytes.
#pragma once

#include <optional>
#include <variant>

#include "interpose/descriptor.h"
#include "weft/stream.hpp"

namespace weft::interpose {

// Has said that it wants a stream; or is plain TCP, and as it was accepted.
using Asking = std::variant<stream::Request, Descriptor>;
using Newcomer = std::variant<stream::Stream, Descriptor>;

// How long a thread can wait for the first word.
enum class Patience {
  much,    // nobody waits for the thread
  little,  // the program does, in accept(2)
};

// Waits for what it says first. Nothing where it has gone, or is not to be served: a plain client,
// unless WEFT_SOCKETS=fallback. Throws Error.
[[nodiscard]] std::optional<Asking> hear(Descriptor connection, const stream::Options& options,
                                         Patience patience);
// Those that do not speak are kept back for some seconds, where the kernel can do so: for whoever
// has little patience.
void keep_silent_back(int kernel);
// Connects who was heard. Throws Error where it has gone meanwhile.
[[nodiscard]] Newcomer let_in(Asking asking);

}  // namespace weft::interpose
