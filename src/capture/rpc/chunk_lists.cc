#include "weft/capture/chunk_lists.hpp"

#include <algorithm>

#include "wire/rpc_rdma.h"

namespace weft::capture {
namespace {

Chunk copy(const wire::ChunkView& view) {
  Chunk chunk;
  chunk.reserve(view.size());
  for (std::size_t i = 0; i < view.size(); ++i) chunk.push_back(view[i]);
  return chunk;
}

}  // namespace

// The view refers to the bytes of a message. The copies may outlive them.
ChunkLists::ChunkLists(const wire::RpcRdmaView& view) {
  reads.reserve(view.reads().size());
  for (std::size_t i = 0; i < view.reads().size(); ++i) reads.push_back(view.reads()[i]);
  for (const wire::ChunkView chunk : view.writes()) writes.push_back(copy(chunk));
  if (view.reply()) reply = copy(*view.reply());
}

bool ChunkLists::has_position_zero() const {
  return std::ranges::any_of(reads, [](const auto& segment) { return segment.position == 0; });
}

std::uint64_t length_of(const Chunk& chunk) {
  std::uint64_t length = 0;
  for (const wire::RdmaSegment& segment : chunk) length += segment.length;
  return length;
}

Spliced splice(const Assembled& base, const std::vector<ReadChunk>& chunks) {
  Spliced out;
  std::uint64_t taken = 0;  // bytes of `base` that were used
  for (const ReadChunk& chunk : chunks) {
    // The position counts bytes of the whole message, so it must lie after the chunks before it,
    // and before the end of `base`.
    const std::uint64_t at = out.message.size();
    if (chunk.position < at || chunk.position - at > base.size() - taken) {
      out.fault = chunk.position < at ? SpliceFault::position_inside_chunk
                                      : SpliceFault::position_beyond_end;
      // The positions of later chunks depend on this one, so those chunks are left out.
      out.position = chunk.position;
      break;
    }
    const std::uint64_t before = chunk.position - at;
    out.message.append(base.part(taken, taken + before));
    taken += before;
    out.message.append(chunk.bytes);
    // Positions count the padding of the chunks before, whether it was transferred or not.
    out.message.pad();
  }
  out.message.append(base.part(taken, base.size()));
  return out;
}

}  // namespace weft::capture
