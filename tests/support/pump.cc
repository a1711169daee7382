#include "support/pump.h"

#include <algorithm>
#include <cstring>

namespace weft::test {

std::size_t feed(iwarp::Connection& connection, Bytes bytes, std::uint64_t now_ns) {
  std::vector<iovec> plan;
  std::size_t fed = 0;
  while (fed < bytes.size()) {
    plan.clear();
    connection.plan_receive(plan);
    if (plan.empty()) break;
    std::size_t landed = 0;
    for (const auto& piece : plan) {
      const std::size_t part = std::min(piece.iov_len, bytes.size() - fed - landed);
      if (part > 0) std::memcpy(piece.iov_base, bytes.data() + fed + landed, part);
      landed += part;
    }
    connection.received(landed);
    if (connection.clock_needed()) connection.on_time(now_ns);
    fed += landed;
  }
  return fed;
}

std::vector<std::byte> peek(iwarp::Connection& connection, std::size_t most) {
  std::vector<std::byte> bytes;
  for (const auto& piece : connection.plan_send()) {
    if (bytes.size() == most) break;
    const auto* at = static_cast<const std::byte*>(piece.iov_base);
    bytes.insert(bytes.end(), at, at + std::min(piece.iov_len, most - bytes.size()));
  }
  return bytes;
}

std::vector<std::byte> drain(iwarp::Connection& connection) {
  std::vector<std::byte> all;
  for (;;) {
    const auto part = peek(connection);
    if (part.empty()) return all;
    all.insert(all.end(), part.begin(), part.end());
    connection.sent(part.size());
  }
}

}  // namespace weft::test
