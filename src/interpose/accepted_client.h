// Classifies a client that has connected to a TCP port on which the program listens: it speaks
// Weft's streams, or plain TCP. Its first bytes show which.
#pragma once

#include <optional>
#include <variant>

#include "interpose/descriptor.h"
#include "interpose/visible_socket.h"
#include "weft/stream.hpp"

namespace weft::interpose {

// A stream's request, which still has to be accepted; or a plain TCP connection, which is ready.
using ClassifiedClient = std::variant<stream::Request, Descriptor>;
// A connected stream with the socket that the program will see, which is the stream's bell.
struct AcceptedStream {
  HiddenPair pair;
  stream::Stream stream;
};
// A connected client, for accept(2) to return.
using AcceptedClient = std::variant<AcceptedStream, Descriptor>;

// How long classify() waits for the first bytes.
enum class ClassifyTimeout {
  background,  // long: no call of the program waits for the thread
  in_accept,   // short: accept(2) waits
};

// Waits for the first bytes of `connection`. Returns nothing if the client has disconnected, or is
// not to be served: a plain TCP client, unless WEFT_SOCKETS=fallback. Throws Error.
[[nodiscard]] std::optional<ClassifiedClient> classify(Descriptor connection,
                                                       const stream::Options& options,
                                                       ClassifyTimeout timeout);
// Sets TCP_DEFER_ACCEPT on a listening socket, so that accept(2) returns only clients that have
// sent data already, or have been silent for some seconds. Keeps a value that the program has set.
void defer_silent_clients(int kernel);
// Completes the connection of a classified client. Throws Error if it has disconnected meanwhile.
// `options`: of the listener.
[[nodiscard]] AcceptedClient complete(ClassifiedClient classified, stream::Options options);

}  // namespace weft::interpose
