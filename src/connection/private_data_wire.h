// The private data of a side that does not advertise buffers, as it is sent over InfiniBand and
// RoCE. Those pad it with zeros (rdma_connect(3)), which would hide its length, so the length is
// put into the end of the padding:
//
//      0  n  the user's private data
//      n  …  zeros
//  end-3  1  n
//  end-2  2  "WP"
//
// A peer that knows nothing of it gets the user's data, and behind it bytes that have no meaning,
// as it would without. Data that leaves no room for the end is sent as it is, and so is none.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weft::connection::detail {

// The room that each message of InfiniBand's connection management has.
enum class CarriedBy : std::size_t { request = 56, acceptance = 196, rejection = 148 };

inline constexpr std::size_t private_data_end_bytes = 3;

[[nodiscard]] std::vector<std::byte> with_length(std::span<const std::byte> user,
                                                 CarriedBy message);
// Returns the user's part. Bytes that have no such end are all the user's, except zeros that fill
// the message: the peer has sent nothing then.
[[nodiscard]] std::span<const std::byte> without_padding(std::span<const std::byte> bytes,
                                                         CarriedBy message);

}  // namespace weft::connection::detail
