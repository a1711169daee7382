// Fuzzes the whole analysis. The input is a byte for the link type, then packets, each after two
// bytes with its captured length (big-endian) and one byte with the number of bytes that the snap
// length cut off. RPCs are followed as well. If the highest bit of the first byte is set, packets
// that may be RoCE v2 over IPv4 get a correct ICRC: mutation would hardly ever produce one.
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "capture/report/report_html.h"
#include "fuzz/fuzz.h"
#include "weft/capture/analysis.hpp"
#include "weft/capture/credit_findings.hpp"
#include "weft/capture/rpc_tracker.hpp"
#include "weft/capture/statistics.hpp"
#include "weft/capture/storage_tracker.hpp"
#include "weft/capture/traffic_findings.hpp"
#include "wire/ib_transport.h"
#include "wire/icrc.h"
#include "wire/link.h"

namespace weft::fuzz {
namespace {

struct Sink final : capture::RpcSink,
                    capture::StorageSink,
                    capture::OperationSink,
                    capture::TrafficSink {
  void on_rpc(const capture::Rpc& rpc) override {
    require(rpc.call.has_value() || rpc.reply.has_value());
    require(!capture::describe(rpc).empty());
    page->rpc(rpc, *analysis);
  }
  void on_command(const capture::StorageCommand& command) override {
    page->command(command, *analysis);
  }
  void on_finding(const capture::Finding& finding) override {
    require(!finding.kind.empty() && !finding.sentence.empty());
    page->finding(finding, *analysis);
  }
  void on_operation(const capture::Operation& operation) override {
    require(operation.missing_bytes <= operation.bytes + operation.requested_bytes);
    page->operation(operation, *analysis);
  }

  void on_forget(capture::ConnectionId id) override {
    page->forgotten(analysis->connections()[id], {*analysis, *statistics, *rpcs, *storage});
  }

  capture::HtmlReport* page = nullptr;
  const capture::Analysis* analysis = nullptr;
  const capture::Statistics* statistics = nullptr;
  const capture::RpcTracker* rpcs = nullptr;
  const capture::StorageTracker* storage = nullptr;
};

// The smallest limits that are useful, so that short inputs reach them.
capture::Analysis::Limits limits() {
  capture::Analysis::Limits limits;
  limits.connections = 4;
  limits.operations = {.waiting = 8, .waiting_in_all = 16};
  limits.infiniband.connection.requests.held_packets = 8;
  limits.infiniband.connection.answers.open_requests = 4;
  limits.infiniband.connection.answers.early_packets = 4;
  limits.infiniband.held_bytes = 64 * 1024;
  limits.infiniband.undecided_packets = 8;
  return limits;
}

constexpr std::array<std::uint32_t, 6> link_types{
    wire::link_type::ethernet, wire::link_type::raw,          wire::link_type::infiniband,
    wire::link_type::erf,      wire::link_type::linux_cooked, wire::link_type::null};

// Writes the correct ICRC to the end of a packet that may be RoCE v2 over Ethernet and IPv4.
void repair(std::vector<std::byte>& packet) {
  constexpr std::size_t network_at = 14;
  constexpr std::size_t network_bytes = 28;
  constexpr std::size_t icrc_bytes = wire::IbPacketView::icrc_bytes;
  if (packet.size() < network_at + network_bytes + wire::Bth::header_bytes + icrc_bytes) return;
  const Bytes network = Bytes(packet).subspan(network_at, network_bytes);
  const Bytes transport = Bytes(packet).subspan(network_at + network_bytes);
  const Bytes covered = transport.first(transport.size() - icrc_bytes);
  const std::uint32_t icrc = wire::Icrc::roce_v2(network, covered).value();
  store_le(packet.data() + packet.size() - icrc_bytes, icrc);
}

void analyse(std::uint32_t link_type, bool repairs, Bytes input) {
  constexpr std::size_t record_bytes = 3;
  capture::Analysis analysis(limits());
  Sink sink;
  capture::RpcTracker rpcs(sink, {.open_calls_in_all = 8, .answered_in_all = 8});
  capture::Statistics statistics;
  capture::TrafficFindings findings(analysis.connections(), sink);
  capture::CreditFindings credits(analysis.connections(), sink);
  capture::StorageTracker storage(analysis.connections(), sink);
  std::size_t page_bytes = 0;
  capture::HtmlReport page({.name = "input"}, analysis,
                           [&](std::string_view text) { page_bytes += text.size(); });
  sink.page = &page;
  sink.analysis = &analysis;
  sink.statistics = &statistics;
  sink.rpcs = &rpcs;
  sink.storage = &storage;
  analysis.add_sink(sink);
  analysis.add_sink(storage);
  analysis.add_sink(page);
  analysis.add_sink(rpcs);
  analysis.add_sink(statistics);
  analysis.add_sink(findings);
  analysis.add_sink(credits);
  analysis.add_operations(sink);
  std::int64_t time_ns = 0;
  while (input.size() >= record_bytes) {
    const std::size_t size = load_be<std::uint16_t>(&input[0]);
    const auto cut = std::to_integer<std::size_t>(input[2]);
    input = input.subspan(record_bytes);
    const Bytes taken = input.first(std::min(size, input.size()));
    input = input.subspan(taken.size());
    std::vector<std::byte> packet(taken.begin(), taken.end());
    if (repairs) repair(packet);
    analysis.add({.time_ns = time_ns += 1000,
                  .link_type = static_cast<decltype(capture::RawPacket::link_type)>(link_type),
                  .bytes = packet,
                  .wire_bytes = packet.size() + cut});
  }
  analysis.finish();
  rpcs.finish();
  storage.finish();
  findings.finish();
  credits.finish();
  page.finish({analysis, statistics, rpcs, storage}, {});
  constexpr std::size_t most_bytes = 10'000'000;
  require(page_bytes < most_bytes);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  if (size == 0) return 0;
  constexpr std::uint8_t repairs = 0x80;
  fuzz::analyse(fuzz::link_types[(data[0] & 0x7F) % fuzz::link_types.size()],
                (data[0] & repairs) != 0, fuzz::input_bytes(data, size).subspan(1));
  return 0;
}
