// Where packets come from: a file of either format, several files, or an interface.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/bytes.hpp"
#include "weft/capture/byte_stream.hpp"
#include "weft/export.hpp"

namespace weft::capture {

// A packet as it was captured. `bytes` is valid until the source is asked for the next one.
struct RawPacket {
  std::int64_t time_ns = 0;
  std::uint16_t link_type = 0;  // LINKTYPE_ value: of tcpdump.org
  Bytes bytes;
  std::size_t wire_bytes = 0;  // more than bytes.size() where the snap length cut it
};

class PacketSource {
 public:
  virtual ~PacketSource() = default;
  // False: there is no packet now. Where a file grows, asking again later is allowed.
  virtual bool next(RawPacket& packet) = 0;
  // One sentence on what could not be read; empty: all is well so far.
  [[nodiscard]] virtual std::string problem() const { return {}; }
  // After the last packet: one sentence on a packet that is there in part; empty: there is none.
  [[nodiscard]] virtual std::string leftover() const { return {}; }
  // Of the stored bytes; both 0 where that means nothing.
  [[nodiscard]] virtual std::uint64_t bytes_read() const { return 0; }
  [[nodiscard]] virtual std::uint64_t bytes_in_all() const { return 0; }
  // Becomes readable when there may be a packet; -1: ask from time to time.
  [[nodiscard]] virtual int descriptor() const { return -1; }
};

// Captured bytes of a packet beyond this are taken for damage, or the reader would have to hold
// them. tcpdump's own limit is 256 KiB, Wireshark's the same; USB captures go higher.
inline constexpr std::size_t max_packet_bytes = 16 * 1024 * 1024;

// By the first bytes: pcap or pcapng. Throws std::runtime_error naming `name` where it is neither,
// and std::system_error where it cannot be read.
[[nodiscard]] WEFT_API std::unique_ptr<PacketSource> read_capture(std::unique_ptr<ByteStream> bytes,
                                                                  const std::string& name);
// Of a file, or of standard input for "-"; `stop` as for open_bytes().
[[nodiscard]] WEFT_API std::unique_ptr<PacketSource> open_capture(
    const std::string& path, const std::atomic<bool>* stop = nullptr);

// Several captures as one, in the order of time: rotated files, or two taken at the same time.
// Opens each file when the first of its packets is due, so that hundreds of rotated files need few
// descriptors. Throws as open_capture() does, at once.
[[nodiscard]] WEFT_API std::unique_ptr<PacketSource> merge_captures(
    const std::vector<std::string>& paths, const std::atomic<bool>* stop = nullptr);

// From an interface, by libpcap, which is loaded now. Needs the right to capture (CAP_NET_RAW).
// `filter`: a libpcap expression, empty for everything. Throws std::runtime_error saying what
// failed and what would help.
[[nodiscard]] WEFT_API std::unique_ptr<PacketSource> capture_live(const std::string& interface,
                                                                  const std::string& filter);

}  // namespace weft::capture
