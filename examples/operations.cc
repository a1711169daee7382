// Walks over the operations and RPCs of a capture. It prints how much each side has moved with each
// kind of operation, and which operation took longest.
//
//   operations trace.pcapng
//
// The packets come from a file here. They may also come from memory: fill a RawPacket, and pass it
// to Analysis::add().
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <tuple>
#include <weft/capture.hpp>

namespace {

namespace capture = weft::capture;

class Sums final : public capture::OperationSink, public capture::RpcSink {
 public:
  explicit Sums(const capture::ConnectionTable& connections) : connections_(connections) {}

  void on_operation(const capture::Operation& operation) override {
    Sum& sum = sums_[{operation.connection, operation.side, operation.kind}];
    ++sum.count;
    sum.bytes += operation.bytes;
    if (operation.outcome != capture::Operation::Outcome::complete) ++sum.not_complete;
    if (operation.latency_ns() > slowest_.latency_ns()) slowest_ = operation;
  }
  // Both messages are complete here: rpc.call->message, rpc.reply->whole, rpc.nfs->operations.
  void on_rpc(const capture::Rpc& rpc) override {
    ++rpcs_[describe(rpc) + ": " + outcome_text(rpc)];
  }
  void on_finding(const capture::Finding& finding) override {
    std::printf("%s", finding.sentence.c_str());
    if (!finding.stamps.empty()) {
      std::printf(" (frame %llu)", static_cast<unsigned long long>(finding.stamps[0].frame));
    }
    std::printf("\n");
  }

  void print() const {
    for (const auto& [key, sum] : sums_) {
      const auto& [id, side, kind] = key;
      std::printf("%s: %llu x %s, %llu bytes", endpoint_text(connections_[id], side).c_str(),
                  static_cast<unsigned long long>(sum.count), to_string(kind),
                  static_cast<unsigned long long>(sum.bytes));
      if (sum.not_complete > 0) {
        std::printf(", %llu not complete", static_cast<unsigned long long>(sum.not_complete));
      }
      std::printf("\n");
    }
    if (slowest_.latency_ns() >= 0) {
      std::printf("slowest: a %s of %llu bytes in frame %llu, %.3f ms\n", to_string(slowest_.kind),
                  static_cast<unsigned long long>(slowest_.bytes),
                  static_cast<unsigned long long>(slowest_.start.frame),
                  static_cast<double>(slowest_.latency_ns()) / 1e6);
    }
    for (const auto& [what, count] : rpcs_) {
      std::printf("%llu x %s\n", static_cast<unsigned long long>(count), what.c_str());
    }
  }

 private:
  struct Sum {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t not_complete = 0;
  };
  using Key = std::tuple<capture::ConnectionId, capture::Side, capture::Operation::Kind>;

  const capture::ConnectionTable& connections_;
  std::map<Key, Sum> sums_;
  std::map<std::string, std::uint64_t> rpcs_;
  capture::Operation slowest_;  // initially one without a known latency
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s CAPTURE\n", arguments[0]);
    return 2;
  }
  try {
    capture::Analysis analysis;
    Sums sums(analysis.connections());
    capture::RpcTracker rpcs(sums);
    analysis.add_operations(sums);
    analysis.add_sink(rpcs);

    const auto source = capture::open_capture(arguments[1]);
    capture::RawPacket packet;
    while (source->next(packet)) analysis.add(packet);
    analysis.finish();
    rpcs.finish();
    sums.print();
    if (!source->problem().empty()) {
      std::fprintf(stderr, "%s: %s\n", arguments[1], source->problem().c_str());
      return 1;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
