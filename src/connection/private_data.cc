#include <cerrno>
#include <utility>

#include "connection/greeting_wire.h"
#include "connection/private_data_wire.h"
#include "weft/connection/options.hpp"

namespace weft::connection {

Rejected::Rejected(const std::string& what, std::vector<std::byte> private_data, ErrorDetail detail)
    : Error(ECONNREFUSED, what, std::move(detail)), private_data_(std::move(private_data)) {}

std::size_t max_private_data_bytes(const Options& options, bool with_buffer) {
  // rdma_connect(3) over InfiniBand has the least room; MPA has more (RFC 6581 §4).
  constexpr std::size_t embedded = 252;
  constexpr auto infiniband = static_cast<std::size_t>(detail::CarriedBy::request);
  const bool exact = options.backend == verbs::Backend::embedded;
  const std::size_t room = exact ? embedded : infiniband;
  if (!options.advertisements) return exact ? room : room - detail::private_data_end_bytes;
  const std::size_t buffer = with_buffer ? verbs::RemoteSlice::encoded_bytes : 0;
  return room - detail::ControlGreeting::fixed_bytes - buffer;
}

}  // namespace weft::connection
