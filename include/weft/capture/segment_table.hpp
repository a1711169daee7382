// The memory that one side of one connection has opened to the other by chunk lists, and what the
// traffic has put into it or taken from it. Fed by a TrafficSink, by chunk lists, or by hand.
//
// The table owns its segments: a pointer to one is good until it is removed or replaced. Traffic
// for memory that is not here is no error; the Outcome says so.
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

// A packet of InfiniBand that carries a part of a Write or of the answer to a Read, or asks for
// one.
struct IbFragment {
  enum class Place : std::uint8_t { first, middle, last, only };
  struct Reth {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t length = 0;
  };

  std::uint32_t psn = 0;
  Place place = Place::only;
  bool read = false;         // Read Request (where there is a RETH) or Read Response
  std::optional<Reth> reth;  // of Read Requests, and of first and only packets of Writes
  Bytes bytes;               // without padding and ICRC
};

// A tagged DDP segment: of an RDMA Write, or of a Read Response.
struct IwarpFragment {
  std::uint32_t stag = 0;
  std::uint64_t offset = 0;
  bool read = false;
  bool last = false;
  Bytes bytes;
};

// An iWARP Read Request: which sink stands for which source.
class ReadMapping {
 public:
  explicit ReadMapping(const wire::ReadRequest& request) : request_(request) {}

  [[nodiscard]] const wire::ReadRequest& request() const { return request_; }
  // Whether the sink has this offset.
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
    no_segment,      // no chunk list has named this handle at this address
    no_sub_segment,  // a packet without address, and the one with it was not seen
    no_request,      // an iWARP answer, and its request was not seen
    wrong_length,    // packets before the last are as long as the path MTU
  };
  struct Outcome {
    Verdict verdict = Verdict::no_segment;
    Segment* segment = nullptr;  // where placed
    Segment::Placed placed{};
  };
  struct Added {
    Segment* segment = nullptr;
    bool known = false;     // the same segment of the same call was there: its length is updated
    bool replaced = false;  // another one with this handle and overlapping memory was there
  };

  // `budget` must outlive the table.
  explicit SegmentTable(Budget& budget) : budget_(&budget) {}

  Added add(const SegmentDescription& description);
  // The newest segment with this handle.
  [[nodiscard]] Segment* find(std::uint32_t handle);
  // The newest one that has this address; nullptr if there is none.
  [[nodiscard]] Segment* find(std::uint32_t handle, std::uint64_t address);
  [[nodiscard]] Segment* find(const wire::RdmaSegment& target, CallNumber call);
  // The segment, and the read requests that refer to it. Others with the same handle or the same
  // sink stay.
  bool remove(const Segment* segment);
  void remove_call(CallNumber call);
  [[nodiscard]] std::size_t size() const { return segments_.size(); }
  void reset();

  // Chunk lists of a call, and of the reply to it: reply_chunks() tells what the reply's lists
  // refer to. Both leave the segments in the table.
  void process_call(const ChunkLists& lists, CallNumber call);
  [[nodiscard]] ReplyChunks reply_chunks(const ChunkLists& reply, CallNumber call);
  // What the call's read list refers to.
  [[nodiscard]] std::vector<ReadChunk> read_chunks(const ChunkLists& lists, CallNumber call);

  // Traffic with an address, whichever wire carried it.
  Outcome place(std::uint32_t handle, std::uint64_t address, Bytes bytes,
                std::uint64_t missing = 0);
  Outcome add_ib_fragment(const IbFragment& fragment);
  // False where the source is no segment: then its answers have nowhere to go.
  bool add_iwarp_request(const wire::ReadRequest& request);
  Outcome add_iwarp_fragment(const IwarpFragment& fragment);
  // Sink to source; nothing if no request of this sink has the offset.
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
  Segments segments_;  // the oldest first
  std::unordered_map<std::uint32_t, std::vector<Segments::iterator>> by_handle_;
  std::unordered_map<std::uint32_t, std::list<Request>> requests_;  // by sink, the oldest first
};

}  // namespace weft::capture
