#include "capture/rpc/rpc_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "wire/rpc.h"
#include "wire/xdr.h"

namespace weft::capture {
namespace {

using wire::RdmaSegment;
using wire::RpcRdmaProcedure;

std::vector<RdmaSegment> segments_of(const ChunkLists& lists) {
  std::vector<RdmaSegment> all;
  for (const auto& segment : lists.reads) all.push_back(segment.target);
  for (const Chunk& chunk : lists.writes) all.insert(all.end(), chunk.begin(), chunk.end());
  if (lists.reply) all.insert(all.end(), lists.reply->begin(), lists.reply->end());
  return all;
}

// Position 0 is for RDMA_NOMSG only (RFC 8166 §3.5.3), and XDR items begin at multiples of four
// (RFC 4506 §3).
void check_positions(FindingReport& report, const Rpc& rpc, const RpcMessage& message) {
  for (const auto& segment : message.lists.reads) {
    if (segment.position == 0 && message.procedure != RpcRdmaProcedure::nomsg) {
      report.add(finding::position_zero_in_msg, rpc,
                 "has a read chunk at position 0 in a message that is not RDMA_NOMSG");
    }
    if (segment.position % wire::xdr_unit_bytes != 0) {
      report.add(finding::position_unaligned, rpc,
                 fmt::format("has a read chunk at position {}, which is no multiple of four",
                             segment.position));
    }
  }
}

}  // namespace

// RFC 8166 §3.5.3: an RDMA_NOMSG message has no inline part. Its RPC message is in a position-zero
// read chunk (call) or in a reply chunk (reply).
void check_header(FindingReport& report, const Rpc& rpc, const RpcMessage& message, bool is_call,
                  std::size_t inline_bytes) {
  if (message.credits == 0) {
    report.add(finding::zero_credits, rpc,
               is_call ? "requests no credits" : "grants no credits: nothing may be sent any more");
  }
  if (message.procedure == RpcRdmaProcedure::nomsg) {
    if (inline_bytes != 0) {
      report.add(finding::nomsg_with_message, rpc,
                 fmt::format("is RDMA_NOMSG, but {} bytes follow its header", inline_bytes));
    }
    if (is_call && !message.lists.has_position_zero()) {
      report.add(finding::nomsg_without_chunk, rpc,
                 "is RDMA_NOMSG without a read chunk at position 0");
    }
    if (!is_call && !message.lists.reply) {
      report.add(finding::nomsg_without_chunk, rpc, "is RDMA_NOMSG without a reply chunk");
    }
  }
  if (inline_bytes % wire::xdr_unit_bytes != 0) {
    report.add(finding::unaligned_message, rpc,
               fmt::format("has {} bytes inline, which is no multiple of four: padding is missing",
                           inline_bytes));
  }
  check_positions(report, rpc, message);
}

// A handle or an address may be in one segment of all open calls only, otherwise the owner of a
// Read or Write is ambiguous. Quadratic search is fine: a list has few segments.
void check_call_chunks(FindingReport& report, const Rpc& rpc, SegmentTable& memory) {
  const std::vector<RdmaSegment> segments = segments_of(rpc.call->lists);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const RdmaSegment& segment = segments[i];
    const auto before = segments.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find_if(segments.begin(), before, [&](const RdmaSegment& other) {
          return other.handle == segment.handle;
        }) != before) {
      report.add(finding::duplicate_handle, rpc,
                 fmt::format("names handle 0x{:08x} in two segments", segment.handle));
    } else if (memory.find(segment.handle) != nullptr) {
      report.add(finding::duplicate_handle, rpc,
                 fmt::format("names handle 0x{:08x}, which a call that is still open has named",
                             segment.handle));
    }
    if (std::find_if(segments.begin(), before, [&](const RdmaSegment& other) {
          return other.offset == segment.offset && other.length != 0 && segment.length != 0 &&
                 segment.offset != 0;  // memory may be registered to begin at 0
        }) != before) {
      report.add(finding::duplicate_address, rpc,
                 fmt::format("names address 0x{:x} in two segments", segment.offset));
    }
    if (segment.length == 0) {
      report.add(finding::empty_segment, rpc,
                 fmt::format("has a segment without bytes, handle 0x{:08x}", segment.handle));
    }
  }
}

namespace {

struct ReplyCheck {
  FindingReport& report;
  const Rpc& rpc;
  SegmentTable& memory;
  CallNumber call;

  // Compares one segment of the reply with the call's, and with the Writes that were captured. A
  // responder returns the call's segments with the same handle and offset and the length that it
  // wrote (RFC 8166 §4.3.2).
  void segment(const char* name, const RdmaSegment& offered, const RdmaSegment& returned) const {
    if (offered.handle != returned.handle || offered.offset != returned.offset) {
      report.add(
          finding::segment_differs, rpc,
          fmt::format("returns a {} with handle 0x{:08x} at 0x{:x}; the call's has handle "
                      "0x{:08x} at 0x{:x}",
                      name, returned.handle, returned.offset, offered.handle, offered.offset));
      return;
    }
    if (returned.length > offered.length) {
      report.add(finding::segment_longer, rpc,
                 fmt::format("returns a {} of {} bytes where the call gave {}", name,
                             returned.length, offered.length));
    }
    const Segment* there = memory.find(offered, call);
    if (there != nullptr && there->reached() > returned.length) {
      report.add(
          returned.length == 0 ? finding::unused_chunk_written : finding::written_beyond_reply, rpc,
          fmt::format("reports {} bytes of a {} as written, but RDMA Writes reached "
                      "byte {}",
                      returned.length, name, there->reached()));
    }
    // If bytes are missing, the capture may have lost a Write in between, so the gap proves
    // nothing.
    if (there != nullptr && there->traffic().writes_discontinuous && rpc.retransmissions == 0 &&
        there->take(returned.length).whole()) {
      report.add(finding::write_discontinuous, rpc,
                 fmt::format("has a {} whose RDMA Writes do not follow one another", name));
    }
  }

  void chunk(const char* name, const Chunk& offered, const Chunk& returned) const {
    if (offered.size() != returned.size()) {
      report.add(finding::segment_count, rpc,
                 fmt::format("returns a {} of {} segments where the call gave {}", name,
                             returned.size(), offered.size()));
    }
    for (std::size_t i = 0; i < std::min(offered.size(), returned.size()); ++i) {
      segment(name, offered[i], returned[i]);
    }
  }
};

}  // namespace

void check_reply_chunks(FindingReport& report, const Rpc& rpc, SegmentTable& memory,
                        CallNumber call) {
  const ChunkLists& offered = rpc.call->lists;
  const ChunkLists& returned = rpc.reply->lists;
  const ReplyCheck check{report, rpc, memory, call};
  if (!returned.reads.empty()) {
    report.add(finding::chunk_count, rpc, "returns a read list, which only calls have");
  }
  if (returned.writes.size() != offered.writes.size()) {
    report.add(finding::chunk_count, rpc,
               fmt::format("returns {} write chunks where the call gave {}", returned.writes.size(),
                           offered.writes.size()));
  }
  for (std::size_t i = 0; i < std::min(offered.writes.size(), returned.writes.size()); ++i) {
    check.chunk("write chunk", offered.writes[i], returned.writes[i]);
  }
  if (returned.reply && !offered.reply) {
    report.add(finding::chunk_count, rpc, "returns a reply chunk that the call did not give");
  } else if (returned.reply) {
    check.chunk("reply chunk", *offered.reply, *returned.reply);
  }
  // RFC 8166 §3.5.2: an inline reply does not use the reply chunk, so its length must be 0.
  if (returned.reply && rpc.reply->procedure != RpcRdmaProcedure::nomsg &&
      length_of(*returned.reply) > 0) {
    report.add(finding::reply_chunk_in_msg, rpc,
               fmt::format("comes inline, but returns a reply chunk of {} bytes",
                           length_of(*returned.reply)));
  }
}

// Compares the requests for each read chunk with its length. A chunk without any request is no
// finding: the capture may simply not contain the Reads.
void check_read_traffic(FindingReport& report, const Rpc& rpc, SegmentTable& memory,
                        CallNumber call, CaptureLacks lacks) {
  for (const auto& read : rpc.call->lists.reads) {
    const Segment* segment = memory.find(read.target, call);
    // The responder reads the chunk of a retransmitted call once more.
    if (segment == nullptr || rpc.retransmissions > 0) continue;
    const SegmentTraffic& traffic = segment->traffic();
    // If bytes are missing, the capture and not the responder may have skipped them. A request that
    // comes before its call is not kept over a gap.
    const bool may_lack_requests = lacks.packets && lacks.order;
    if (traffic.reads_discontinuous && segment->complete() && !may_lack_requests) {
      report.add(finding::read_discontinuous, rpc,
                 fmt::format("has a read chunk (handle 0x{:08x}) whose read requests do not follow "
                             "one another",
                             segment->handle()));
    }
    // A capture with gaps may lack some of the requests, but it cannot contain too many.
    const bool too_few = traffic.read_bytes < segment->length();
    if (traffic.read_bytes != 0 && traffic.read_bytes != segment->length() &&
        !(too_few && lacks.anything)) {
      report.add(finding::read_length, rpc,
                 fmt::format("has a read chunk of {} bytes (handle 0x{:08x}) of which {} were "
                             "requested",
                             segment->length(), segment->handle(), traffic.read_bytes));
    }
  }
}

// Reports messages with flaws, so that a reader does not take zeros for content.
void check_messages(FindingReport& report, const Rpc& rpc, CaptureLacks lacks) {
  const auto report_flaws = [&](const char* what, const Assembled& bytes) {
    // The snap length cuts every message, so it is no news about one of them. If it has cut the
    // request of a Read, the place of the whole answer is unknown.
    const bool requests_cut = lacks.anything && !lacks.packets;
    const bool only_cut =
        !bytes.open_end() && std::ranges::all_of(bytes.flaws(), [&](const auto& one) {
          return one.flaw == Flaw::cut || (requests_cut && one.flaw == Flaw::missing);
        });
    if (bytes.whole() || only_cut) return;
    const bool unassigned = lacks.requests && &bytes == &rpc.call->message;
    report.add(finding::incomplete, rpc,
               fmt::format("is incomplete: of the {}, {}{}", what, describe_flaws(bytes),
                           unassigned ? ", or among Read responses that cannot be assigned to a "
                                        "request"
                                      : ""));
  };
  if (rpc.call) report_flaws("call", rpc.call->message);
  if (!rpc.reply) return;
  report_flaws("reply", rpc.reply->message);
  for (const Assembled& chunk : rpc.reply->chunks) report_flaws("write chunk", chunk);
}

void check_exchange(FindingReport& report, const Rpc& rpc, const ExchangeFaults& faults) {
  for (const LengthMismatch& mismatch : faults.lengths) {
    report.add(finding::length_mismatch, rpc,
               fmt::format("returns an item of {} bytes, but the write chunk that holds it has {}",
                           mismatch.length_word, mismatch.in_chunk));
  }
  if (faults.unused_chunks != 0) {
    report.add(finding::unused_chunk_written, rpc,
               fmt::format("returns bytes in {} write chunks that no result has a use for",
                           faults.unused_chunks));
  }
  if (rpc.status && *rpc.status != wire::RpcStatus::success) {
    report.add(finding::rejected, rpc,
               fmt::format("was rejected: {}", wire::describe(*rpc.status)));
  }
}

}  // namespace weft::capture
