// Reads capture files of the classic format, and detects the format of a file.
#include <fmt/format.h>

#include <stdexcept>

#include "capture/sources/netmon_source.h"
#include "capture/sources/record_source.h"
#include "capture/sources/unpacker.h"
#include "capture/tcp/byte_window.h"
#include "wire/pcap.h"
#include "wire/pcapng.h"

namespace weft::capture {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::int64_t microsecond_ns = 1'000;

class PcapSource final : public PacketSource {
 public:
  PcapSource(ByteWindow window, const wire::PcapHeader& header)
      : window_(std::move(window)), header_(header) {}

  // Returns a packet only when all its bytes are available, so that a growing file can be followed.
  // Damage is final: the boundary of the next packet is unknown then, so later calls read nothing.
  bool next(RawPacket& packet) override {
    if (!problem_.empty()) return false;
    const auto record =
        wire::PcapRecord::parse(window_.peek(wire::PcapRecord::header_bytes), header_.order);
    if (!record) return false;
    // The limit bounds the window, which has to hold a packet as a whole.
    if (record->captured_bytes > max_packet_bytes) {
      problem_ =
          fmt::format("damaged at byte {}: a packet of {} bytes cannot be; the rest is not read",
                      window_.position(), record->captured_bytes);
      return false;
    }
    const std::size_t whole = wire::PcapRecord::header_bytes + record->captured_bytes;
    const Bytes bytes = window_.peek(whole);
    if (bytes.size() < whole) return false;
    packet.time_ns = std::int64_t{record->seconds} * second_ns +
                     std::int64_t{record->fraction} * (header_.nanoseconds ? 1 : microsecond_ns);
    packet.link_type = header_.link_type;
    packet.bytes = bytes.subspan(wire::PcapRecord::header_bytes, record->captured_bytes);
    // Some writers do not set the length on the wire.
    packet.wire_bytes = std::max(record->original_bytes, record->captured_bytes);
    // This moves no bytes, so those of the packet stay valid until the next call.
    window_.skip(whole);
    return true;
  }
  [[nodiscard]] std::string problem() const override {
    return problem_.empty() ? window_.stream().problem() : problem_;
  }
  [[nodiscard]] std::string leftover() const override {
    if (!problem_.empty()) return {};
    if (window_.buffered() == 0) return unfinished_text(window_.stream());
    return fmt::format("ends in the middle of a packet, at byte {}", window_.position());
  }
  [[nodiscard]] std::uint64_t bytes_read() const override {
    return window_.stream().stored_bytes_read();
  }
  [[nodiscard]] std::uint64_t bytes_in_all() const override {
    return window_.stream().stored_bytes();
  }

 private:
  ByteWindow window_;
  wire::PcapHeader header_;
  std::string problem_;
};

// A compressed file gives nothing if it ends within its first block, or if that is damaged.
std::string nothing_text(const ByteWindow& window, const std::string& name) {
  const ByteStream& stream = window.stream();
  if (const std::string problem = stream.problem(); !problem.empty()) return name + ": " + problem;
  if (stream.stored_bytes_read() == 0) return name + " is empty";
  return name + ": its compressed data ends before the first packet";
}

// Returns what is wrong with the compressed data of a file of no known format; empty if nothing is
// known. Checksums come at the end of blocks, of which the largest that is usual has 4 MiB.
std::string damage_of(ByteWindow& window) {
  constexpr std::uint64_t most_bytes = 8U << 20;
  constexpr std::size_t step_bytes = 64 * 1024;
  while (window.position() < most_bytes) {
    const std::size_t there = window.peek(step_bytes).size();
    if (there == 0) break;
    window.skip(there);
  }
  return window.stream().problem();
}

}  // namespace

std::unique_ptr<PacketSource> read_pcap(ByteWindow window) {
  const auto header = wire::PcapHeader::parse(window.peek(wire::PcapHeader::header_bytes));
  if (!header) return nullptr;
  window.skip(wire::PcapHeader::header_bytes);
  return std::make_unique<PcapSource>(std::move(window), *header);
}

// Tries pcapng first, because its magic number cannot be confused with that of pcap. ERF comes
// last, because it has none.
std::unique_ptr<PacketSource> read_capture(std::unique_ptr<ByteStream> bytes,
                                           const std::string& name) {
  ByteWindow window(std::move(bytes));
  const Bytes first = window.peek(wire::PcapHeader::header_bytes);
  if (first.empty()) throw std::runtime_error(nothing_text(window, name));
  if (wire::pcapng_section_order(first)) return read_pcapng(std::move(window));
  const auto header = wire::PcapHeader::parse(first);
  if (header) return read_pcap(std::move(window));
  if (auto netmon = read_netmon(window, name)) return netmon;
  if (auto records = read_records(window, name)) return records;
  if (header.error() == wire::WireError::truncated) {
    throw std::runtime_error(name + " is too short for a capture");
  }
  if (header.error() == wire::WireError::bad_version) {
    throw std::runtime_error(name + " is a pcap file of a version other than 2");
  }
  const std::string unread = unread_format_text(first, name);
  const std::string damage = damage_of(window);
  throw std::runtime_error(damage.empty() ? unread : fmt::format("{}: {}", name, damage));
}

std::unique_ptr<PacketSource> open_capture(const std::string& path, const std::atomic<bool>* stop) {
  return read_capture(open_bytes(path, stop), path == "-" ? "standard input" : path);
}

}  // namespace weft::capture
