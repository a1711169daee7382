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
  explicit ReadMapping(const wire::ReadRequest& request) : request_(request) {}

  [[nodiscard]] const wire::ReadRequest& request() const { return request_; }
  // Returns whether the offset is in the sink of this request.
  [[nodiscard]] bool contains(std::uint64_t sink_offset) const {
    return sink_offset - request_.sink_offset < request_.size_bytes;
  }
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
    Segment* segment = nullptr;  // set if placed
    Segment::Placed placed{};
  };
  struct Added {
    Segment* segment = nullptr;
    bool known = false;     // the same segment of the same call existed; its length was updated
    bool replaced = false;  // another segment with this handle and overlapping memory existed
  };

  // `budget` must outlive the table.
  explicit SegmentTable(Budget& budget) : budget_(&budget) {}

  Added add(const SegmentDescription& description);
  // Returns the newest segment with this handle.
  [[nodiscard]] Segment* find(std::uint32_t handle);
  // Returns the newest segment that contains this address, or nullptr.
  [[nodiscard]] Segment* find(std::uint32_t handle, std::uint64_t address);
  [[nodiscard]] Segment* find(const wire::RdmaSegment& target, CallNumber call);
  // Removes the segment and the read requests that refer to it. Other segments with the same
  // handle, and other requests with the same sink, stay.
  bool remove(const Segment* segment);
  void remove_call(CallNumber call);
  [[nodiscard]] std::size_t size() const { return segments_.size(); }
  void reset();

  // Register the chunk lists of a call, and collect the bytes that the lists of its reply refer to.
  // Both leave the segments in the table.
  void process_call(const ChunkLists& lists, CallNumber call);
  [[nodiscard]] ReplyChunks reply_chunks(const ChunkLists& reply, CallNumber call);
  // Collects the bytes that the call's read list refers to.
  [[nodiscard]] std::vector<ReadChunk> read_chunks(const ChunkLists& lists, CallNumber call);

  // Stores the bytes of traffic with an address, from either transport.
  Outcome place(std::uint32_t handle, std::uint64_t address, Bytes bytes,
                std::uint64_t missing = 0);
  Outcome add_ib_fragment(const IbFragment& fragment);
  // Returns false if the source is in no segment; then the responses cannot be placed.
  bool add_iwarp_request(const wire::ReadRequest& request);
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
