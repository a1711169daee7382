// The memory that requests name: whether their keys allow it, and a checksum of what it holds.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "check/checker.h"

namespace weft::check {

// How a request uses its pieces.
struct Use {
  const ibv_pd* domain = nullptr;
  bool writes = false;  // a receive, a read or an atomic
  std::string request;  // "Send 17 on queue pair 0x2a0001"
};

// Reports each piece that its lkey does not allow.
void check_pieces(Call& call, std::span<const ibv_sge> pieces, const Use& use);

// A checksum of the memory of the pieces: of all of it up to 64 KiB, else of samples. Nothing if
// memory cannot be read, or a key is not valid.
[[nodiscard]] std::optional<std::uint32_t> checksum_of(std::span<const ibv_sge> pieces);

// Reports a region whose memory is not mapped any more, or only in part: before it is deregistered.
void check_mapped(Call& call, const ibv_mr& mr);

// "region with key 0x2a01: 4096 bytes at 0x7f00"
[[nodiscard]] std::string describe(const MemoryRegion& region);

}  // namespace weft::check
