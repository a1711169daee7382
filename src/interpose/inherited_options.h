// The socket options that a program has set, kept as values: accept(2) gives a new socket those of
// the listener.
#pragma once

#include <cstddef>
#include <vector>

#include "weft/stream/options.hpp"

namespace weft::interpose {

// The arguments of setsockopt(2).
struct SocketOption {
  int level;
  int name;
  std::vector<std::byte> value;
};

struct InheritedOptions {
  int family = 0;
  std::vector<SocketOption> values;  // one for each pair of level and name

  // Null if the option was not set.
  [[nodiscard]] const SocketOption* find(int level, int name) const;
  void set(SocketOption option);
};

// Reads the options that matter to streams from a kernel socket.
[[nodiscard]] InheritedOptions inherited_options_of(int kernel);
// Buffer sizes and keepalive; the rest are defaults.
[[nodiscard]] stream::Options stream_options(const InheritedOptions& inherited);
// SO_LINGER with a time of zero: close(2) resets the connection.
[[nodiscard]] bool resets_at_close(const InheritedOptions& inherited);
// The timeout in the value of SO_RCVTIMEO or SO_SNDTIMEO, rounded up; -1 is none.
[[nodiscard]] int timeout_ms_of(const SocketOption& option);

}  // namespace weft::interpose
