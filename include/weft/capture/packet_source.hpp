// Sources of packets: a file in either format, several files, or an interface.
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

// A packet as it was captured. `bytes` is valid until the next call of PacketSource::next().
struct RawPacket {
  std::int64_t time_ns = 0;
  std::uint16_t link_type = 0;  // LINKTYPE_ value, as tcpdump.org defines them
  Bytes bytes;
  std::size_t wire_bytes = 0;  // more than bytes.size() if the snap length cut the packet
};

class PacketSource {
 public:
  virtual ~PacketSource() = default;
  // Reads the next packet. Returns false if there is none now; if the file grows, a later call may
  // return one.
  virtual bool next(RawPacket& packet) = 0;
  // Returns one sentence about what could not be read; empty if there was no error so far.
  [[nodiscard]] virtual std::string problem() const { return {}; }
  // After the last packet: returns one sentence about an incomplete packet at the end; empty if
  // there is none.
  [[nodiscard]] virtual std::string leftover() const { return {}; }
  // Returns how many stored bytes were read so far; 0 if that has no meaning for the source.
  [[nodiscard]] virtual std::uint64_t bytes_read() const { return 0; }
  // Returns how many stored bytes there are, for several files in sum; 0 if that is unknown or has
  // no meaning for the source. See ByteStream::stored_bytes().
  [[nodiscard]] virtual std::uint64_t bytes_in_all() const { return 0; }
  // A descriptor that becomes readable when there may be a packet; -1: poll from time to time.
  [[nodiscard]] virtual int descriptor() const { return -1; }
};

// The largest captured size of a packet that readers accept. A larger one is treated as damage,
// because the reader would have to hold it. tcpdump and Wireshark limit packets to 256 KiB; USB
// captures have larger ones.
inline constexpr std::size_t max_packet_bytes = 16 * 1024 * 1024;

// Detects pcap, pcapng, snoop or ERF by the first bytes. Throws std::runtime_error with `name` in
// its text, and the command that converts it, if it is none of them, and std::system_error if it
// cannot be read.
[[nodiscard]] WEFT_API std::unique_ptr<PacketSource> read_capture(std::unique_ptr<ByteStream> bytes,
                                                                  const std::string& name);
// Opens a file, or standard input for "-"; `stop` works as for open_bytes().
[[nodiscard]] WEFT_API std::unique_ptr<PacketSource> open_capture(
    const std::string& path, const std::atomic<bool>* stop = nullptr);

// Merges several captures in the order of time: rotated files, or files that were captured at the
// same time. Of packets with equal times, those of the file that begins first are first, and of
// files that begin at the same time those of the one that is named first. Opens each file when its
// first packet is due, so that hundreds of rotated files need few descriptors. Throws at once, as
// open_capture() does.
[[nodiscard]] WEFT_API std::unique_ptr<PacketSource> merge_captures(
    const std::vector<std::string>& paths, const std::atomic<bool>* stop = nullptr);

// Reads a source that has an end in a thread of its own, a few batches of half a megabyte ahead of
// the caller. The packets are the same, in the same order, and so are problem() and leftover()
// after the last one. What the source throws comes from next(). The destructor waits until the
// thread has read its batch. Throws std::system_error if there can be no thread; then the source is
// lost.
[[nodiscard]] WEFT_API std::unique_ptr<PacketSource> read_ahead(
    std::unique_ptr<PacketSource> source);

// One of several captures, and what its clock is ahead of the others: its times are reduced by
// that.
struct CaptureFile {
  std::string path;
  std::int64_t clock_ahead_ns = 0;
};
// The same with corrected clocks.
[[nodiscard]] WEFT_API std::unique_ptr<PacketSource> merge_captures(
    const std::vector<CaptureFile>& files, const std::atomic<bool>* stop = nullptr);

// How the clock of one capture differs from that of another one.
struct ClockDifference {
  std::string path;
  std::string reference;
  std::int64_t ahead_ns = 0;  // of `path` compared with `reference`; negative: behind
  std::size_t samples = 0;    // packets by which it was measured
};

// Measures by the packets at the beginning of each capture what its clock is ahead of that of an
// earlier one in the list, and sets clock_ahead_ns. Where nothing can be measured, or the
// difference is smaller than the time that packets need, it stays 0. Returns the differences that
// it found.
[[nodiscard]] WEFT_API std::vector<ClockDifference> measure_clocks(
    std::vector<CaptureFile>& files, const std::atomic<bool>* stop = nullptr);

// Captures from an interface with libpcap, which is loaded at the first call. Needs the right to
// capture (CAP_NET_RAW). `filter` is a libpcap expression; empty captures everything. Throws
// std::runtime_error with the reason and advice.
[[nodiscard]] WEFT_API std::unique_ptr<PacketSource> capture_live(const std::string& interface,
                                                                  const std::string& filter);

}  // namespace weft::capture
