// Reads files of the pcapng format: any number of sections, each with its own byte order and
// interfaces.
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "capture/sources/unpacker.h"
#include "capture/tcp/byte_window.h"
#include "wire/pcapng.h"

namespace weft::capture {
namespace {

// Type, length, and the magic number of a section header.
constexpr std::size_t block_head_bytes = 12;

// Limit for blocks that are parsed. Other blocks (keys, names) may be larger; they are skipped
// unless they are needed to read packets.
constexpr std::size_t max_block_bytes = max_packet_bytes + 64 * 1024;

// A file with more interface descriptions is damaged or hostile.
constexpr std::size_t max_interfaces = 65'536;

// An interface description that outlives the block from which it was parsed.
struct Interface {
  wire::PcapngInterface description;

  explicit Interface(const wire::PcapngInterface& parsed) : description(parsed) {
    // The name is a view into the block, which does not live as long as this.
    description.name = {};
  }
};

class PcapngSource final : public PacketSource {
 public:
  explicit PcapngSource(ByteWindow window) : window_(std::move(window)) {}

  // Skips blocks until there is a packet. An incomplete block at the end is not an error, because
  // the file may grow.
  bool next(RawPacket& packet) override {
    while (problem_.empty()) {
      const Bytes head = window_.peek(block_head_bytes);
      if (head.size() < block_head_bytes) return false;
      // A section header has its own byte order, which is needed to read even its length.
      if (const auto order = wire::pcapng_section_order(head)) order_ = *order;
      const auto length = wire::pcapng_block_bytes(head, order_);
      if (!length) return damaged("a block of an impossible length");
      const auto type = wire::pcapng_block_type(head, order_);
      if (!matters(type)) {
        window_.skip(*length);
        continue;
      }
      if (*length > max_block_bytes) return damaged("a block that is too large");
      const Bytes bytes = window_.peek(*length);
      if (bytes.size() < *length) return false;
      const auto block = wire::PcapngBlock::parse(bytes, order_);
      if (!block) return damaged("a block whose two lengths disagree");
      const bool is_packet = take(*block, packet);
      window_.skip(*length);
      if (is_packet) return true;
    }
    return false;
  }
  [[nodiscard]] std::string problem() const override {
    return problem_.empty() ? window_.stream().problem() : problem_;
  }
  [[nodiscard]] std::string leftover() const override {
    if (!problem_.empty()) return {};
    if (window_.buffered() == 0) return unfinished_text(window_.stream());
    return fmt::format("ends in the middle of a block, at byte {}", window_.position());
  }
  [[nodiscard]] std::uint64_t bytes_read() const override {
    return window_.stream().stored_bytes_read();
  }
  [[nodiscard]] std::uint64_t bytes_in_all() const override {
    return window_.stream().stored_bytes();
  }

 private:
  static bool matters(wire::PcapngType type) {
    switch (type) {
      case wire::PcapngType::section:
      case wire::PcapngType::interface:
      case wire::PcapngType::packet:
      case wire::PcapngType::old_packet:
      case wire::PcapngType::simple_packet:
        return true;
    }
    return false;
  }

  // Stops reading at a damaged block. The start of the next block is unknown then.
  bool damaged(const char* why) {
    problem_ = fmt::format("damaged at byte {}: {}; the rest is not read", window_.position(), why);
    return false;
  }

  // Handles one block. Returns true if it is a packet, which is then in `packet`.
  bool take(const wire::PcapngBlock& block, RawPacket& packet) {
    switch (block.type) {
      case wire::PcapngType::section:
        // The numbers of interfaces are local to a section.
        interfaces_.clear();
        if (!wire::PcapngSection::parse(block)) damaged("a section of an unknown version");
        return false;
      case wire::PcapngType::interface:
        describe(block);
        return false;
      case wire::PcapngType::simple_packet:
        return take_simple(block, packet);
      default:
        return take_packet(block, packet);
    }
  }

  // An interface that cannot be parsed would shift the numbers of all later ones, so it ends the
  // file.
  void describe(const wire::PcapngBlock& block) {
    const auto interface = wire::PcapngInterface::parse(block);
    if (!interface || interfaces_.size() == max_interfaces) {
      damaged("an interface that cannot be understood");
      return;
    }
    interfaces_.emplace_back(*interface);
  }

  bool take_packet(const wire::PcapngBlock& block, RawPacket& packet) {
    const auto parsed = wire::PcapngPacket::parse(block);
    if (!parsed) return damaged("a packet longer than its block");
    if (parsed->interface_id >= interfaces_.size()) {
      return damaged("a packet of an interface that was not described");
    }
    const auto& interface = interfaces_[parsed->interface_id].description;
    last_time_ns_ = wire::pcapng_nanoseconds(interface, parsed->timestamp);
    packet.time_ns = last_time_ns_;
    packet.link_type = interface.link_type;
    packet.bytes = parsed->data(block);
    packet.wire_bytes = std::max(parsed->original_bytes, parsed->captured_bytes);
    return true;
  }

  // Simple packets have no time; that of the packet before is the best estimate.
  bool take_simple(const wire::PcapngBlock& block, RawPacket& packet) {
    if (interfaces_.empty()) return damaged("a packet of an interface that was not described");
    // A simple packet block has no interface number; the format assigns it to the first interface.
    const auto& interface = interfaces_.front().description;
    const auto parsed = wire::PcapngSimplePacket::parse(block, interface.snap_bytes);
    if (!parsed) return damaged("a packet that is too short");
    packet.time_ns = last_time_ns_;
    packet.link_type = interface.link_type;
    packet.bytes = parsed->data;
    packet.wire_bytes = std::max<std::size_t>(parsed->original_bytes, parsed->data.size());
    return true;
  }

  ByteWindow window_;
  wire::PcapngOrder order_ = wire::PcapngOrder::little;
  std::vector<Interface> interfaces_;
  std::int64_t last_time_ns_ = 0;
  std::string problem_;
};

}  // namespace

std::unique_ptr<PacketSource> read_pcapng(ByteWindow window) {
  return std::make_unique<PcapngSource>(std::move(window));
}

}  // namespace weft::capture
