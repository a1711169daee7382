// Owning copies of the chunk lists of an RPC-over-RDMA header, and the XDR stream that inline bytes
// and chunks form together (RFC 8166 §3.4).
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

  // Creates empty lists.
  ChunkLists() = default;
  // Copies the chunk lists of a header. The copy does not refer to the bytes of the message.
  explicit ChunkLists(const wire::RpcRdmaView& view);

  // Returns whether there is neither a read segment, nor a write chunk, nor a reply chunk.
  [[nodiscard]] bool empty() const { return reads.empty() && writes.empty() && !reply; }
  // Returns whether there is a Position-Zero Read Chunk, which holds a whole call.
  [[nodiscard]] bool has_position_zero() const;
  bool operator==(const ChunkLists&) const = default;
};

// Returns the sum of the lengths of all segments.
[[nodiscard]] WEFT_API std::uint64_t length_of(const Chunk& chunk);

// All read segments with the same position.
struct ReadChunk {
  std::uint32_t position = 0;
  Assembled bytes;
};

struct ReplyChunks {
  std::vector<Assembled> writes;  // one for each write chunk in the reply's write list
  std::optional<Assembled> reply;
};

// The largest message that is reassembled. A longer one yields an empty Assembled with one flaw
// that has the announced length. NFS messages end at 1 MiB; a hostile header may announce 4 GiB per
// segment.
inline constexpr std::uint64_t max_message_bytes = 64U << 20;

enum class SpliceFault : std::uint8_t {
  none,
  position_inside_chunk,  // it lies inside the chunk before it
  position_beyond_end,    // it lies after the end of the message
};

struct Spliced {
  Assembled message;
  SpliceFault fault = SpliceFault::none;
  std::uint32_t position = 0;  // position of the chunk at fault
};

// Inserts read chunks into the reduced message. `base` holds the inline bytes or the Position-Zero
// Read Chunk. `chunks` must be sorted by position. Each chunk goes to its position, counted in the
// whole message, and is rounded up to four bytes whether or not its padding was sent (RFC 8166
// §3.4.5.2).
[[nodiscard]] WEFT_API Spliced splice(const Assembled& base, const std::vector<ReadChunk>& chunks);

}  // namespace weft::capture
