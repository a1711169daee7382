#include <cerrno>

#include "connection/greeting_wire.h"
#include "weft/connection/options.hpp"

namespace weft::connection {

Rejected::Rejected(const std::string& what, std::vector<std::byte> private_data)
    : Error(ECONNREFUSED, what), private_data_(std::move(private_data)) {}

std::size_t max_private_data_bytes(const Options& options, bool with_buffer) {
  // rdma_connect(3) over InfiniBand has the least room; MPA has more (RFC 6581 §4).
  constexpr std::size_t infiniband = 56;
  constexpr std::size_t embedded = 252;
  const std::size_t room = options.backend == verbs::Backend::embedded ? embedded : infiniband;
  if (!options.advertisements) return room;
  const std::size_t buffer = with_buffer ? verbs::RemoteSlice::encoded_bytes : 0;
  return room - detail::ControlGreeting::fixed_bytes - buffer;
}

}  // namespace weft::connection
