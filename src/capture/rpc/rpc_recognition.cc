#include "capture/rpc/rpc_recognition.h"

#include <algorithm>

#include "weft/capture/chunk_lists.hpp"
#include "wire/rpc.h"
#include "wire/rpc_rdma.h"
#include "wire/xdr.h"

namespace weft::capture {
namespace {

constexpr std::uint32_t most_credits = 1U << 16;
// Five words: XID, direction, reply status, reject status, and its reason (RFC 5531 §9).
constexpr std::uint64_t shortest_rpc_bytes = 20;  // the shortest reply, a denied one

bool sensible(const wire::RdmaSegment& segment) {
  // A segment does not wrap around the address space.
  return segment.offset + segment.length >= segment.offset;
}

bool sensible(const ChunkLists& lists) {
  for (const wire::ReadSegment& segment : lists.reads) {
    // Positions are those of XDR items, which begin at multiples of four bytes.
    if (segment.position % 4 != 0 || segment.target.length == 0 || !sensible(segment.target)) {
      return false;
    }
  }
  const auto good = [](const Chunk& chunk) {
    return std::ranges::all_of(chunk, [](const auto& segment) { return sensible(segment); });
  };
  return std::ranges::all_of(lists.writes, good) && (!lists.reply || good(*lists.reply));
}

// The body must be an RPC message with the same XID and a valid header. A reply has no read chunks,
// because only calls offer memory to be read.
bool proves_inline(const wire::RpcRdmaView& view, const ChunkLists& lists) {
  const auto start = wire::RpcStart::parse(view.body());
  if (!start || start->xid != view.xid() || lists.has_position_zero()) return false;
  if (start->kind == wire::RpcKind::call) return wire::RpcCall::parse(view.body()).ok();
  return lists.reads.empty() && wire::RpcReply::parse(view.body()).ok();
}

// The message must be in a chunk that is large enough for one.
bool proves_long(const wire::RpcRdmaView& view, const ChunkLists& lists) {
  if (!view.body().empty()) return false;
  if (lists.has_position_zero()) {
    std::uint64_t length = 0;
    for (const auto& segment : lists.reads) {
      if (segment.position == 0) length += segment.target.length;
    }
    return length >= shortest_rpc_bytes;
  }
  return lists.reads.empty() && lists.reply && length_of(*lists.reply) >= shortest_rpc_bytes;
}

}  // namespace

// The version is the second word of the header, and the procedure the fourth (RFC 8166 §4.1).
bool may_be_rpc_rdma(Bytes first_bytes) {
  const auto word = [&](std::size_t at) { return wire::XdrReader(first_bytes.subspan(at)).u32(); };
  // The first part of a message may be shorter than its header. Words that are not there rule
  // nothing out.
  if (first_bytes.size() >= 8 && word(4) != wire::rpc_rdma_version) return false;
  return first_bytes.size() < 16 ||
         word(12) <= static_cast<std::uint32_t>(wire::RpcRdmaProcedure::error);
}

// No further call could follow a credit value of zero. The upper limit only excludes other data.
bool proves_rpc_rdma(const wire::RpcRdmaView& view) {
  if (view.credits() == 0 || view.credits() > most_credits) return false;
  const ChunkLists lists(view);
  if (!sensible(lists)) return false;
  if (view.procedure() == wire::RpcRdmaProcedure::msg) return proves_inline(view, lists);
  if (view.procedure() == wire::RpcRdmaProcedure::nomsg) return proves_long(view, lists);
  return false;
}

}  // namespace weft::capture
