// The memory that one side of one connection has exposed to the other by chunk lists, and the bytes
// that the traffic has written there or read from there. A TrafficSink, chunk lists or direct calls
// can feed it.
//
// The table owns its segments: a pointer to one is valid until it is removed or replaced. Traffic
// for memory that is not in the table is not an error; the Outcome reports it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "weft/bytes.hpp"
#include "weft/capture/chunk_lists.hpp"
#include "weft/capture/segment.hpp"
#include "weft/export.hpp"
#include "weft/wire/values.hpp"

namespace weft::capture {

// An InfiniBand packet with a part of a Write or of a Read response, or a Read request.
struct IbFragment {
  enum class Place : std::uint8_t { first, middle, last, only };
  struct Reth {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t length = 0;
  };

  std::uint32_t psn = 0;
  Place place = Place::only;
  bool read = false;         // Read Request (if there is a RETH) or Read Response
  std::optional<Reth> reth;  // on Read Requests, and on first and only packets of Writes
  Bytes bytes;               // without padding and ICRC
};

// A tagged DDP segment of an RDMA Write or a Read Response.
struct IwarpFragment {
  std::uint32_t stag = 0;
  std::uint64_t offset = 0;
  bool read = false;
  bool last = false;
  Bytes bytes;
};

// An iWARP Read Request: maps offsets of its sink to offsets of its source.
class ReadMapping {
 public:
  // Copies the request.
  explicit ReadMapping(const wire::ReadRequest& request) : request_(request) {}

  // Returns the request. The reference is valid as long as this object.
  [[nodiscard]] const wire::ReadRequest& request() const { return request_; }
  // Returns whether the offset is in the sink of this request.
  [[nodiscard]] bool contains(std::uint64_t sink_offset) const {
    return sink_offset - request_.sink_offset < request_.size_bytes;
  }
  // Returns the offset in the source that belongs to an offset in the sink. The result has no
  // meaning if contains() is false for that offset.
  [[nodiscard]] std::uint64_t source_of(std::uint64_t sink_offset) const {
    return sink_offset - request_.sink_offset + request_.source_offset;
  }

 private:
  wire::ReadRequest request_;
};

class WEFT_API SegmentTable {
 public:
  enum class Verdict : std::uint8_t {
    placed,
    no_segment,      // no chunk list names this handle with this address
    no_sub_segment,  // the packet has no address, and the packet with the address was not captured
    no_request,      // an iWARP response, and its request was not captured
    wrong_length,    // a packet before the last is not as long as the path MTU
  };
  struct Outcome {
    Verdict verdict = Verdict::no_segment;
    Segment* segment = nullptr;  // set if placed, and with wrong_length
    Segment::Placed placed{};
  };
  struct Added {
    Segment* segment = nullptr;
    bool known = false;     // the same segment of the same call existed; its length was updated
    bool replaced = false;  // another segment with this handle and overlapping memory existed
  };

  // `budget` must outlive the table.
  explicit SegmentTable(Budget& budget) : budget_(&budget) {}

  // Registers a segment. If the same call has one with the same handle, address and use, only its
  // length is updated. Other segments with the same handle that overlap the new one or begin at the
  // same address are removed, because their memory was registered again: pointers to them become
  // invalid.
  Added add(const SegmentDescription& description);
  // Returns the newest segment with this handle, or nullptr.
  [[nodiscard]] Segment* find(std::uint32_t handle);
  // Returns the newest segment that contains this address, or nullptr.
  [[nodiscard]] Segment* find(std::uint32_t handle, std::uint64_t address);
  // Returns the segment of this call that has the handle and the first address of `target`, or
  // nullptr. Their lengths may differ.
  [[nodiscard]] Segment* find(const wire::RdmaSegment& target, CallNumber call);
  // Removes the segment and the read requests that refer to it. Other segments with the same
  // handle, and other requests with the same sink, stay. `segment` must be valid or nullptr.
  // Returns false for nullptr, and for a segment of another table.
  bool remove(const Segment* segment);
  // Removes all segments of this call, and the read requests that refer to them.
  void remove_call(CallNumber call);
  // Returns the number of segments.
  [[nodiscard]] std::size_t size() const { return segments_.size(); }
  // Removes all segments and read requests, and returns the stored bytes to the budget.
  void reset();

  // Registers all segments in the chunk lists of a call; see add().
  void process_call(const ChunkLists& lists, CallNumber call);
  // Collects the bytes that the chunk lists of a reply refer to; holes are flaws. A chunk that is
  // longer than max_message_bytes has no bytes, and one flaw. The segments stay in the table.
  [[nodiscard]] ReplyChunks reply_chunks(const ChunkLists& reply, CallNumber call);
  // Collects the bytes that the call's read list refers to, in the same way; here the limit applies
  // to the sum of all chunks. The result is ordered by position.
  [[nodiscard]] std::vector<ReadChunk> read_chunks(const ChunkLists& lists, CallNumber call);

  // Stores the bytes of traffic with an address, from either transport.
  Outcome place(std::uint32_t handle, std::uint64_t address, Bytes bytes,
                std::uint64_t missing = 0);
  // Stores the bytes of an InfiniBand packet. A RETH names the segment by key and address. A packet
  // without one belongs to the Write or Read whose first PSN is the nearest at or before its own.
  // The place follows from the number of bytes, so `bytes` must be the whole payload.
  Outcome add_ib_fragment(const IbFragment& fragment);
  // Returns false if the source is in no segment; then the responses cannot be placed.
  bool add_iwarp_request(const wire::ReadRequest& request);
  // Stores the bytes of a tagged DDP segment. A Write names its place. A Read Response belongs to a
  // request whose sink contains its offset: to the oldest one that is still open, because requests
  // are answered in order (RFC 5040 §5.2.2), otherwise to a closed one.
  Outcome add_iwarp_fragment(const IwarpFragment& fragment);
  // Translates a sink offset to a source offset; nothing if no request of this sink contains it.
  [[nodiscard]] std::optional<std::uint64_t> source_of(std::uint32_t sink_stag,
                                                       std::uint64_t sink_offset);

 private:
  struct Request {
    ReadMapping mapping;
    const Segment* segment;
    bool closed = false;  // its last fragment, or one of a later request, was seen
  };
  using Segments = std::list<Segment>;

  Outcome open_sub_segment(const IbFragment& fragment);
  Outcome place_by_psn(const IbFragment& fragment);
  Request* choose(const IwarpFragment& fragment);
  void forget_requests_of(const Segment* segment);
  Segments::iterator erase(Segments::iterator at);
  [[nodiscard]] Assembled take(const wire::RdmaSegment& target, CallNumber call);

  Budget* budget_;
  Segments segments_;  // oldest first
  std::unordered_map<std::uint32_t, std::vector<Segments::iterator>> by_handle_;
  std::unordered_map<std::uint32_t, std::list<Request>> requests_;  // by sink, oldest first
};

}  // namespace weft::capture
