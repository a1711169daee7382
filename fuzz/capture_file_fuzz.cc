// Fuzzes captures as files: pcap, pcapng and others, plain or compressed in every way, with the
// whole analysis of their content. The input is the file.
#include <memory>
#include <stdexcept>
#include <utility>

#include "capture/tcp/byte_window.h"
#include "fuzz/fuzz.h"
#include "weft/capture/analysis.hpp"
#include "weft/capture/byte_stream.hpp"
#include "weft/capture/packet_source.hpp"
#include "weft/capture/rpc_tracker.hpp"

namespace weft::fuzz {
namespace {

struct Sink final : capture::RpcSink {
  void on_rpc(const capture::Rpc& rpc) override { require(!capture::describe(rpc).empty()); }
  void on_finding(const capture::Finding& finding) override { require(!finding.sentence.empty()); }
};

// Limit on the packets: a compressed file may hold far more than its size suggests.
constexpr std::size_t most_packets = 4'096;

std::unique_ptr<capture::ByteStream> unpacked(Bytes input) {
  constexpr std::byte gzip{0x1F};
  constexpr std::byte zstd{0x28};
  constexpr std::byte xz{0xFD};
  constexpr std::byte bzip2{'B'};
  constexpr std::byte lz4{0x04};
  auto bytes = capture::bytes_in_memory(input);
  if (input.empty()) return bytes;
  if (input[0] == gzip) return capture::unpack_gzip(std::move(bytes));
  if (input[0] == zstd) return capture::unpack_zstd(std::move(bytes));
  if (input[0] == xz) return capture::unpack_xz(std::move(bytes));
  if (input[0] == bzip2) return capture::unpack_bzip2(std::move(bytes));
  if (input[0] == lz4) return capture::unpack_lz4(std::move(bytes));
  return bytes;
}

void read(Bytes input) {
  const auto source = capture::read_capture(unpacked(input), "input");
  capture::Analysis analysis;
  Sink sink;
  capture::RpcTracker rpcs(sink);
  analysis.add_sink(rpcs);
  capture::RawPacket packet;
  for (std::size_t packets = 0; packets < most_packets && source->next(packet); ++packets) {
    require(packet.bytes.size() <= packet.wire_bytes);
    require(packet.bytes.size() <= capture::max_packet_bytes);
    analysis.add(packet);
  }
  analysis.finish();
  rpcs.finish();
  require(source->bytes_read() <= input.size());
  (void)source->problem();
  (void)source->leftover();
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  try {
    fuzz::read(fuzz::input_bytes(data, size));
  } catch (const std::runtime_error&) {
    // The input is not a capture.
  }
  return 0;
}
