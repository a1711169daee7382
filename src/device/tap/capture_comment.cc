#include "device/tap/capture_comment.h"

#include <array>
#include <vector>

#include "base/bytes.h"
#include "base/kernel_clock.h"
#include "device/tap/capture_writer.h"
#include "wire/ethernet.h"
#include "wire/pcapng.h"

namespace weft::device {
namespace {

constexpr std::size_t most_bytes = 1024;
constexpr wire::EtherType local_experiment{0x88B5};

}  // namespace

void write_comment(CaptureFile& file, std::string_view text) {
  CaptureWriter& writer = file.writer();
  if (!writer.writable()) return writer.count_lost(1);
  text = text.substr(0, most_bytes);
  wire::PcapngPacket block;
  block.timestamp = kernel_clock_ns(CLOCK_REALTIME);
  block.captured_bytes =
      static_cast<std::uint32_t>(wire::EthernetHeader::header_bytes + text.size());
  block.original_bytes = block.captured_bytes;
  block.comment = text;
  std::array<std::byte, wire::PcapngPacket::head_bytes + wire::EthernetHeader::header_bytes> head;
  block.emit_head(head);
  const wire::EthernetHeader link{.type = local_experiment};
  link.emit(MutableBytes(head).subspan(wire::PcapngPacket::head_bytes));
  std::vector<std::byte> tail(block.tail_bytes());
  block.emit_tail(tail);
  // iovec has no const form; the text is only read.
  std::array<iovec, 3> vectors{{{head.data(), head.size()},
                                {const_cast<char*>(text.data()), text.size()},
                                {tail.data(), tail.size()}}};
  writer.write(vectors, 1);
}

}  // namespace weft::device
