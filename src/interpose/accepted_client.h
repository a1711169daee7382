// A client that has connected to a TCP port on which the program listens: it speaks Weft's streams,
// or plain TCP.
#pragma once

#include <optional>
#include <variant>

#include "interpose/descriptor.h"
#include "interpose/first_bytes.h"
#include "interpose/refusal.h"
#include "interpose/visible_socket.h"
#include "weft/stream.hpp"

namespace weft::interpose {

// A connected stream with the socket that the program will see, which is the stream's bell.
struct AcceptedStream {
  HiddenPair pair;
  stream::Stream stream;
};
// A connected client, for accept(2) to return.
using AcceptedClient = std::variant<AcceptedStream, Descriptor>;

// Accepts the request of a stream, whose bell is in `pair`. `options`: of the listener. Throws
// Error.
[[nodiscard]] AcceptedClient accept_stream(HiddenPair pair, stream::Request request,
                                           stream::Options options);
// Connects a client whose request is in the socket. Returns nothing if the client has disconnected
// or the device refuses the request. Throws Error.
[[nodiscard]] std::optional<AcceptedClient> connect_stream(Descriptor connection,
                                                           const stream::Options& options);
// Returns a plain TCP client if plain clients are served (WEFT_SOCKETS=fallback), and announces it.
// Disconnects it otherwise, and counts it as refused because of `why`.
[[nodiscard]] std::optional<AcceptedClient> serve_plain(Descriptor connection, Refusal why);
// Takes the key from a client whose connection is left to the kernel (Protocol::agreed). Returns
// nothing if it has disconnected.
[[nodiscard]] std::optional<AcceptedClient> serve_agreed(Descriptor connection);
// Takes the key alone. False if the client has disconnected, which is counted.
[[nodiscard]] bool take_key(int connection);
// Sets TCP_DEFER_ACCEPT on a listening socket, so that accept(2) returns only clients that have
// sent data already, or have been silent for some seconds. Keeps a value that the program has set;
// returns false then.
bool defer_silent_clients(int kernel);
void stop_deferring(int kernel);

}  // namespace weft::interpose
