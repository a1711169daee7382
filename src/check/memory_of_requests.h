// The memory that requests name: whether their keys allow it, and a checksum of what it holds.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

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

// Where the pieces are in this process. Empty if a key is not valid, or the memory is elsewhere.
[[nodiscard]] MemoryRanges ranges_of(std::span<const ibv_sge> pieces);
// The same for memory that a request of this domain writes to; empty also if the device refuses
// that.
[[nodiscard]] MemoryRanges written_ranges_of(std::span<const ibv_sge> pieces, const ibv_pd* domain);

// Checksums of the memory, taken as one sequence of bytes, for each 64 bytes of its first 64 KiB.
// Empty if it cannot be read.
[[nodiscard]] std::vector<std::uint32_t> block_checksums(const MemoryRanges& ranges);
// The address of the first block behind the first `placed` bytes that has another checksum now.
[[nodiscard]] std::optional<std::uint64_t> changed_behind(const MemoryRanges& ranges,
                                                          const std::vector<std::uint32_t>& blocks,
                                                          std::uint64_t placed);
// Whether peers, or other requests, may have written to the memory of a receive while it was
// posted.
[[nodiscard]] bool may_be_written_by_others(const Request& receive);

// The memory of a Read that is about to be posted, filled with a pattern, so that a program that
// looks at it too early finds no old data that happen to be right. Of memory of more than 64 KiB
// the first and the last 16 KiB. Nothing is filled where the Read reads from there, nor where the
// device refuses to write.
class FilledMemory {
 public:
  FilledMemory(const MemoryRanges& ranges, std::uint64_t remote_address, std::uint32_t rkey);
  // The request was not posted.
  void restore() const;

 private:
  void fill(std::uint64_t first, std::uint64_t bytes);

  struct Saved {
    std::uint64_t first = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Saved> saved_;
};

// Reports a region whose memory is not mapped any more, or only in part: before it is deregistered.
void check_mapped(Call& call, const ibv_mr& mr);

// "region with key 0x2a01: 4096 bytes at 0x7f00"
[[nodiscard]] std::string describe(const MemoryRegion& region);

}  // namespace weft::check
