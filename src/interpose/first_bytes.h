// The first bytes of a client show what it speaks: the protocol of streams, or plain TCP.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft::interpose {

enum class Protocol {
  unknown,       // too few bytes are here
  stream,        // the whole request of a stream is here
  plain,         // plain TCP
  agreed,        // plain TCP, on which two programs under Weft agree: begins with agreed_key
  wakes,         // no client: wake_key, see UnfinishedClients
  malformed,     // the request of a stream, which the device would refuse
  disconnected,  // the connection was lost
};

struct FirstBytes {
  Protocol protocol = Protocol::unknown;
  std::size_t count = 0;  // how many are here, as far as they were looked at
};

// The first bytes of a stream's MPA request, its key, fit (RFC 5044 §7.1.1). Fewer bytes may be
// plain TCP.
constexpr std::size_t request_key_bytes = 16;

// A client that leaves its connection to the kernel, because the server offers that, sends this
// first, so that it is told from one that knows nothing of Weft. The program's bytes follow.
constexpr std::string_view agreed_key = "Weft: kernel TCP";
static_assert(agreed_key.size() == request_key_bytes);

// What a process sends that connects to a listening socket of its own, so that its program calls
// accept(2). Any process that has the socket may accept that connection, and closes it.
constexpr std::string_view wake_key = "Weft: accept now";
static_assert(wake_key.size() == request_key_bytes);

// Looks at what has arrived and leaves it in the socket. Does not block.
[[nodiscard]] FirstBytes look_at_first_bytes(int fd);
// What a client speaks that sends no more: because it has ended its side, or because it was given
// enough time. A client that has ended its side may still receive, so it counts as plain TCP, as a
// silent one does: in some protocols the server sends first.
[[nodiscard]] Protocol without_more_bytes(const FirstBytes& found);

}  // namespace weft::interpose
