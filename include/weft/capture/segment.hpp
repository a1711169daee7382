// A segment: memory that a chunk list has named, as far as traffic has filled or read it. A message
// consists of chunks, a chunk of segments, a segment of sub-segments (one RDMA Write or Read each),
// and a sub-segment of fragments (one packet each).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/bytes.hpp"
#include "weft/capture/assembled.hpp"
#include "weft/capture/byte_map.hpp"
#include "weft/export.hpp"
#include "weft/wire/values.hpp"

namespace weft::capture {

// Names a call to the segments that it registered; 0 where nobody needs that.
using CallNumber = std::uint64_t;

enum class SegmentUse : std::uint8_t { read, write, reply };
enum class Padding : std::uint8_t { without, with };

struct SegmentDescription {
  wire::RdmaSegment target{};
  SegmentUse use = SegmentUse::read;
  std::uint32_t position = 0;  // of the read chunk
  CallNumber call = 0;
};

// One RDMA Write or Read of InfiniBand: the PSNs from its first packet or request on.
class WEFT_API SubSegment {
 public:
  SubSegment(std::uint32_t first_psn, std::uint64_t address, std::uint64_t length, bool read)
      : first_psn_(first_psn), address_(address), length_(length), read_(read) {}

  [[nodiscard]] std::uint32_t first_psn() const { return first_psn_; }
  [[nodiscard]] std::uint64_t address() const { return address_; }
  [[nodiscard]] std::uint64_t length() const { return length_; }
  [[nodiscard]] bool read() const { return read_; }
  [[nodiscard]] std::uint64_t mtu_bytes() const { return mtu_bytes_; }  // 0: not known yet
  // 0 until the MTU is known, unless one packet is enough in any case.
  [[nodiscard]] std::uint64_t packets() const;
  // How far `psn` is behind the first one, modulo 2^24.
  [[nodiscard]] std::uint32_t distance(std::uint32_t psn) const;
  // Middle packets are as long as the path MTU, and so are first ones.
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
  std::uint64_t read_bytes = 0;  // asked for, without repetitions
  bool reads_discontinuous = false;
  std::uint64_t next_read = 0;  // in the segment
  std::uint64_t writes = 0;     // RDMA Writes
  bool writes_discontinuous = false;
  std::uint64_t next_write = 0;
  std::uint64_t last_frame = 0;
};

class WEFT_API Segment {
 public:
  // `budget` must outlive the segment.
  Segment(const SegmentDescription& description, Budget& budget)
      : description_(description), bytes_(budget) {}

  [[nodiscard]] const SegmentDescription& description() const { return description_; }
  [[nodiscard]] std::uint32_t handle() const { return description_.target.handle; }
  [[nodiscard]] std::uint64_t address() const { return description_.target.offset; }
  [[nodiscard]] std::uint32_t length() const { return description_.target.length; }
  void set_length(std::uint32_t length) { description_.target.length = length; }
  [[nodiscard]] bool contains(std::uint64_t address) const {
    return address - this->address() < length();
  }

  struct Placed {
    ByteMap::Placed bytes;
    std::uint64_t outside = 0;  // of the segment: not kept
  };
  // `missing` bytes behind `bytes` were on the wire but not in the capture.
  Placed place(std::uint64_t address, Bytes bytes, std::uint64_t missing = 0);

  [[nodiscard]] std::uint64_t present() const { return bytes_.present(length()); }
  [[nodiscard]] bool complete() const { return present() == length(); }
  // The first byte behind the last one that traffic has touched, counted from address().
  [[nodiscard]] std::uint64_t end() const { return bytes_.end(); }
  [[nodiscard]] bool untouched() const { return bytes_.empty(); }
  [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t size) const;
  // The first `length` bytes (all, if the segment is shorter), and with the padding that XDR wants
  // behind them, whether or not it travelled.
  [[nodiscard]] Assembled take(std::uint64_t length, Padding padding = Padding::without) const;
  [[nodiscard]] Assembled take(Padding padding = Padding::without) const {
    return take(length(), padding);
  }

  SegmentTraffic& traffic() { return traffic_; }
  [[nodiscard]] const SegmentTraffic& traffic() const { return traffic_; }

  // Of InfiniBand traffic that was fed packet by packet; the oldest first.
  std::vector<SubSegment>& sub_segments() { return sub_segments_; }
  [[nodiscard]] const std::vector<SubSegment>& sub_segments() const { return sub_segments_; }

 private:
  SegmentDescription description_;
  ByteMap bytes_;  // from 0 at address()
  SegmentTraffic traffic_;
  std::vector<SubSegment> sub_segments_;
};

}  // namespace weft::capture
