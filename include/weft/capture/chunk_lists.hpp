// The chunk lists of an RPC-over-RDMA header, kept; and the XDR stream that inline bytes and chunks
// make together: RFC 8166 §3.4.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/capture/assembled.hpp"
#include "weft/export.hpp"
#include "weft/wire/values.hpp"

namespace weft::capture {

using Chunk = std::vector<wire::RdmaSegment>;

struct WEFT_API ChunkLists {
  std::vector<wire::ReadSegment> reads;
  std::vector<Chunk> writes;
  std::optional<Chunk> reply;

  ChunkLists() = default;
  explicit ChunkLists(const wire::RpcRdmaView& view);

  [[nodiscard]] bool empty() const { return reads.empty() && writes.empty() && !reply; }
  // Whether a whole call is in the Position-Zero Read Chunk.
  [[nodiscard]] bool has_position_zero() const;
  bool operator==(const ChunkLists&) const = default;
};

// Bytes of all its segments.
[[nodiscard]] WEFT_API std::uint64_t length_of(const Chunk& chunk);

// All read segments of one position.
struct ReadChunk {
  std::uint32_t position = 0;
  Assembled bytes;
};

struct ReplyChunks {
  std::vector<Assembled> writes;  // as many as the reply's write list has
  std::optional<Assembled> reply;
};

// A message above this many bytes is not put together: its Assembled is empty, with one flaw of the
// length that was announced. NFS ends at 1 MiB; a hostile header may announce 4 GiB a segment.
inline constexpr std::uint64_t max_message_bytes = 64U << 20;

enum class SpliceFault : std::uint8_t {
  none,
  position_inside_chunk,  // of the chunk before it
  position_beyond_end,    // of the message
};

struct Spliced {
  Assembled message;
  SpliceFault fault = SpliceFault::none;
  std::uint32_t position = 0;  // of the chunk at fault
};

// `base` is what was sent inline, or the Position-Zero Read Chunk: the reduced message. Each chunk
// of `chunks`, which are sorted by position, goes where its position says, counted in the whole
// message, and is rounded up to four bytes whether or not padding travelled (RFC 8166 §3.4.5.2).
[[nodiscard]] WEFT_API Spliced splice(const Assembled& base, const std::vector<ReadChunk>& chunks);

}  // namespace weft::capture
