#include "capture/sources/record_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "capture/sources/unpacker.h"
#include "wire/link.h"
#include "wire/record_files.h"

namespace weft::capture {
namespace {

using Parse = Result<wire::FileRecord, wire::WireError> (*)(Bytes bytes);

class RecordSource final : public PacketSource {
 public:
  RecordSource(ByteWindow window, std::uint16_t link_type, Parse parse)
      : window_(std::move(window)), link_type_(link_type), parse_(parse) {}

  // As with pcap: a packet is returned when it is there as a whole, and damage is final.
  bool next(RawPacket& packet) override {
    // More than the header of a record in each format.
    constexpr std::size_t head_bytes = 64;
    if (!problem_.empty()) return false;
    const auto record = parse_(window_.peek(head_bytes));
    if (!record && record.error() == wire::WireError::truncated) return false;
    if (!record || record->record_bytes > max_packet_bytes) {
      problem_ = fmt::format(
          "damaged at byte {}: a record of an impossible length; the rest is "
          "not read",
          window_.position());
      return false;
    }
    const Bytes bytes = window_.peek(record->record_bytes);
    if (bytes.size() < record->record_bytes) return false;
    packet.time_ns = record->time_ns;
    packet.link_type = link_type_;
    packet.bytes = bytes.subspan(record->packet_at, record->captured_bytes);
    packet.wire_bytes = record->original_bytes;
    window_.skip(record->record_bytes);
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
  std::uint16_t link_type_;
  Parse parse_;
  std::string problem_;
};

// Formats that are not read, by the first bytes of their files: those that editcap reads
// (Wireshark's wiretap), and archives, which another program unpacks.
struct Format {
  std::string_view magic;
  std::string_view name;
  std::string_view unpacks = {};  // the command, with {} for the file; empty: editcap
};
constexpr std::array formats{
    Format{"btsnoop", "btsnoop"},
    Format{"TRSNIFF data", "Sniffer (DOS)"},
    Format{"XCP", "Sniffer (Windows) or NetXray"},
    Format{"ObserverPktBuffe", "Viavi Observer"},
    Format{"\x7fver", "WildPackets EtherPeek"},
    Format{"RADCOM WAN", "RADCOM"},
    Format{"\x54\x52\x00\x64\x00", "HP-UX nettl"},
    Format{"iptrace 1.0", "AIX iptrace 1"},
    Format{"iptrace 2.0", "AIX iptrace 2"},
    Format{"\x34\xcd\xb2\xa1", "modified pcap"},
    Format{"\xa1\xb2\xcd\x34", "modified pcap"},
    Format{"\x05VNF", "Visual Networks"},
    Format{"\xaa\xaa\xaa\xaa", "Accellent 5Views"},
    Format{std::string_view("\x01\x10\x4c\x00", 4), "Novell LANalyzer"},
    Format{"+---------+---------------+", "K12 text"},
    Format{"LZIP", "lzip", "lzip -dc {}"},
    Format{std::string_view("\x5d\x00\x00", 3), "LZMA alone", "xz -dc {}"},
    Format{"\x02\x21\x4c\x18", "lz4 of its first version", "lz4 -dc {}"},
    Format{"\x1f\x9d", "compress", "gzip -dc {}"},
    Format{"PK\x03\x04", "zip", "unzip -p {}"},
    Format{"7z\xbc\xaf\x27\x1c", "7z", "7z x -so {}"},
};

std::string command_text(const std::string& name) {
  return fmt::format("`editcap {0} {0}.pcapng` converts it", name);
}

}  // namespace

std::unique_ptr<PacketSource> read_records(ByteWindow& window, const std::string& name) {
  const auto snoop = wire::SnoopHeader::parse(window.peek(wire::SnoopHeader::header_bytes));
  if (snoop) {
    if (!snoop->is_ethernet()) {
      throw std::runtime_error(
          fmt::format("{} is a snoop file of the link layer {}, which is not read; {}", name,
                      snoop->datalink, command_text(name)));
    }
    window.skip(wire::SnoopHeader::header_bytes);
    return std::make_unique<RecordSource>(std::move(window), wire::link_type::ethernet,
                                          &wire::FileRecord::parse_snoop);
  }
  // Records of ERF have at most 64 KiB, so that two of them are there.
  constexpr std::size_t erf_bytes = 128 * 1024;
  if (!wire::begins_like_erf(window.peek(erf_bytes))) return nullptr;
  return std::make_unique<RecordSource>(std::move(window), wire::link_type::erf,
                                        &wire::FileRecord::parse_erf);
}

std::string unread_format_text(Bytes first, const std::string& name) {
  const std::string_view begin(reinterpret_cast<const char*>(first.data()), first.size());
  const auto known = std::ranges::find_if(
      formats, [&](const Format& format) { return begin.starts_with(format.magic); });
  if (known != formats.end()) {
    const std::string command = known->unpacks.empty()
                                    ? command_text(name)
                                    : fmt::format("`{} | weft dissect -` reads it",
                                                  fmt::format(fmt::runtime(known->unpacks), name));
    return fmt::format("{} is of the format {}, which is not read; {}", name, known->name, command);
  }
  return fmt::format(
      "{} is of no format that is read (pcap, pcapng, snoop, ERF, Network Monitor); if it is a "
      "capture, {}",
      name, command_text(name));
}

}  // namespace weft::capture
