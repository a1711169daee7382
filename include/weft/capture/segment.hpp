// A segment: memory that a chunk list names, and the bytes with which traffic has filled or read
// it. A message consists of chunks, a chunk of segments, a segment of sub-segments (one RDMA Write
// or Read each), and a sub-segment of fragments (one packet each).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/bytes.hpp"
#include "weft/capture/assembled.hpp"
#include "weft/capture/byte_map.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"
#include "weft/wire/values.hpp"

namespace weft::capture {

// Identifies the call that registered a segment; 0 if the user of the table does not need that.
using CallNumber = std::uint64_t;

enum class SegmentUse : std::uint8_t { read, write, reply };
enum class Padding : std::uint8_t { without, with };

struct SegmentDescription {
  wire::RdmaSegment target{};
  SegmentUse use = SegmentUse::read;
  std::uint32_t position = 0;  // position of the read chunk
  CallNumber call = 0;
};

// One RDMA Write or Read on InfiniBand: the range of PSNs that begins with its first packet or
// request.
class WEFT_API SubSegment {
 public:
  // Describes a Write or, with `read`, a Read of `length` bytes. `first_psn` is the PSN of the
  // first packet of the Write, or of the Read request.
  SubSegment(std::uint32_t first_psn, std::uint64_t address, std::uint64_t length, bool read)
      : first_psn_(first_psn), address_(address), length_(length), read_(read) {}

  // Returns the PSN of the first packet of the Write, or of the Read request.
  [[nodiscard]] std::uint32_t first_psn() const { return first_psn_; }
  // Returns the remote address of the first byte.
  [[nodiscard]] std::uint64_t address() const { return address_; }
  // Returns the length of the whole Write or Read, in bytes.
  [[nodiscard]] std::uint64_t length() const { return length_; }
  // Returns true for a Read, and false for a Write.
  [[nodiscard]] bool read() const { return read_; }
  // Returns the path MTU; 0 if it is not known yet.
  [[nodiscard]] std::uint64_t mtu_bytes() const { return mtu_bytes_; }
  // Returns 0 until the MTU is known, unless one packet is enough with any MTU.
  [[nodiscard]] std::uint64_t packets() const;
  // Returns the distance from the first PSN to `psn`, modulo 2^24.
  [[nodiscard]] std::uint32_t distance(std::uint32_t psn) const;
  // First and middle packets are as long as the path MTU, so the MTU is their length.
  void learn_mtu(std::uint64_t bytes) { mtu_bytes_ = bytes; }

 private:
  std::uint32_t first_psn_;
  std::uint64_t address_;
  std::uint64_t length_;
  std::uint64_t mtu_bytes_ = 0;
  bool read_;
};

// What the other side did with a segment.
struct SegmentTraffic {
  std::uint64_t read_bytes = 0;      // bytes requested, without repetitions
  std::uint64_t answered_bytes = 0;  // bytes of Read responses, also of those that were cut
  bool reads_discontinuous = false;
  std::uint64_t next_read = 0;  // expected offset in the segment
  std::uint64_t writes = 0;     // number of RDMA Writes
  bool writes_discontinuous = false;
  std::uint64_t next_write = 0;
  std::uint64_t last_frame = 0;
  // Times of the first and the last packet; 0 if there was none.
  std::int64_t first_ns = 0;
  std::int64_t last_ns = 0;

  // Notes the frame and the time of one more packet.
  void note(const Stamp& stamp) {
    last_frame = std::max(last_frame, stamp.frame);
    if (first_ns == 0) first_ns = stamp.time_ns;
    last_ns = stamp.time_ns;
  }
};

class WEFT_API Segment {
 public:
  // `budget` must outlive the segment.
  Segment(const SegmentDescription& description, Budget& budget)
      : description_(description), bytes_(budget) {}

  // Returns what the chunk list says about the segment. The reference is valid as long as the
  // segment.
  [[nodiscard]] const SegmentDescription& description() const { return description_; }
  // Returns the rkey or STag.
  [[nodiscard]] std::uint32_t handle() const { return description_.target.handle; }
  // Returns the address of the first byte: a virtual address, or a tagged offset.
  [[nodiscard]] std::uint64_t address() const { return description_.target.offset; }
  // Returns the length in bytes.
  [[nodiscard]] std::uint32_t length() const { return description_.target.length; }
  // Changes the length, in bytes. Stored bytes beyond it are kept, but they are neither counted nor
  // returned.
  void set_length(std::uint32_t length) { description_.target.length = length; }
  // Returns whether the address is in the segment.
  [[nodiscard]] bool contains(std::uint64_t address) const {
    return address - this->address() < length();
  }

  struct Placed {
    ByteMap::Placed bytes;
    std::uint64_t outside = 0;  // outside of the segment, and not stored
  };
  // Stores `bytes`. `missing` bytes after them were on the wire, but not captured.
  Placed place(std::uint64_t address, Bytes bytes, std::uint64_t missing = 0);

  // Returns how many bytes of the segment are stored.
  [[nodiscard]] std::uint64_t present() const { return bytes_.present(length()); }
  // Returns whether all bytes of the segment are stored.
  [[nodiscard]] bool complete() const { return present() == length(); }
  // Returns the offset, from address(), after the last byte that traffic has placed, stored or not:
  // the snap length may have cut it. Returns 0 if there was none.
  [[nodiscard]] std::uint64_t reached() const { return bytes_.reached(); }
  // Returns whether all `size` bytes from `address` on are stored.
  [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t size) const;
  // Returns the first `length` bytes, or all if the segment is shorter; Padding::with appends the
  // XDR padding, whether or not it was sent.
  [[nodiscard]] Assembled take(std::uint64_t length, Padding padding = Padding::without) const;
  [[nodiscard]] Assembled take(Padding padding = Padding::without) const {
    return take(length(), padding);
  }

  // Returns what the other side did with the segment. The user of the segment counts it: place()
  // does not change it. The reference is valid as long as the segment.
  SegmentTraffic& traffic() { return traffic_; }
  [[nodiscard]] const SegmentTraffic& traffic() const { return traffic_; }

  // The sub-segments of InfiniBand traffic that was added packet by packet, oldest first.
  std::vector<SubSegment>& sub_segments() { return sub_segments_; }
  [[nodiscard]] const std::vector<SubSegment>& sub_segments() const { return sub_segments_; }

 private:
  SegmentDescription description_;
  ByteMap bytes_;  // offset 0 is address()
  SegmentTraffic traffic_;
  std::vector<SubSegment> sub_segments_;
};

}  // namespace weft::capture
