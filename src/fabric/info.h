// fi_getinfo(3): describes what the provider offers for the hints of a program.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weft/stream.hpp"

namespace weft::fabric {

inline constexpr char provider_name[] = "weft";
inline constexpr std::uint32_t protocol_version = 1;
inline constexpr std::size_t max_pieces = 64;  // in one fi_sendv or fi_recvv

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

[[nodiscard]] Info copy_of(const fi_info& info);  // throws std::bad_alloc

// The options of the stream for an endpoint with these attributes. Throws Error(EINVAL) if one is
// out of range.
[[nodiscard]] stream::Options options_of(const fi_info& info);

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info);

}  // namespace weft::fabric
