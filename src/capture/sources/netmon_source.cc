#include "capture/sources/netmon_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "wire/netmon.h"

namespace weft::capture {
namespace {

class NetmonSource final : public PacketSource {
 public:
  NetmonSource(ByteWindow window, const wire::NetmonHeader& header)
      : window_(std::move(window)), header_(header) {}

  // As with pcap: a packet is returned when it is there as a whole, and damage is final. The table
  // after the packets is not read.
  bool next(RawPacket& packet) override {
    if (!problem_.empty() || at_end()) return false;
    const auto size = header_.record_bytes(window_.peek(wire::NetmonHeader::record_header_bytes));
    if (!size) return false;
    if (*size > max_packet_bytes || window_.position() + *size > header_.table_at) {
      problem_ =
          fmt::format("damaged at byte {}: a record of an impossible length; the rest is not read",
                      window_.position());
      return false;
    }
    const Bytes available = window_.peek(*size);
    if (available.size() < *size) return false;
    const Bytes bytes = available.first(*size);
    const wire::NetmonRecord record = header_.record(bytes);
    packet.time_ns = record.time_ns;
    packet.link_type = wire::NetmonHeader::link_type_of(record.network);
    packet.bytes = bytes.subspan(record.packet_at, record.captured_bytes);
    packet.wire_bytes = std::max(record.original_bytes, record.captured_bytes);
    window_.skip(*size);
    return true;
  }
  [[nodiscard]] std::string problem() const override {
    return problem_.empty() ? window_.stream().problem() : problem_;
  }
  [[nodiscard]] std::string leftover() const override {
    if (!problem_.empty() || at_end()) return {};
    return fmt::format("ends before its table of packets, at byte {}", window_.position());
  }
  [[nodiscard]] std::uint64_t bytes_read() const override {
    return window_.stream().stored_bytes_read();
  }
  [[nodiscard]] std::uint64_t bytes_in_all() const override {
    return window_.stream().stored_bytes();
  }

 private:
  [[nodiscard]] bool at_end() const { return window_.position() >= header_.table_at; }

  ByteWindow window_;
  wire::NetmonHeader header_;
  std::string problem_;
};

}  // namespace

std::unique_ptr<PacketSource> read_netmon(ByteWindow& window, const std::string& name) {
  const auto header = wire::NetmonHeader::parse(window.peek(wire::NetmonHeader::header_bytes));
  if (!header) {
    if (header.error() != wire::WireError::bad_version) return nullptr;
    throw std::runtime_error(fmt::format(
        "{0} is of a version of Microsoft Network Monitor's format that is not read; `editcap {0} "
        "{0}.pcapng` may convert it",
        name));
  }
  window.skip(wire::NetmonHeader::header_bytes);
  return std::make_unique<NetmonSource>(std::move(window), *header);
}

}  // namespace weft::capture
