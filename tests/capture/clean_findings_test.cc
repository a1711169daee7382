// The stored captures as they were taken: exactly the findings that are true, and no other.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "capture/stored_capture.h"
#include "weft/capture/rpc_tracker.hpp"
#include "weft/capture/storage_tracker.hpp"
#include "weft/capture/traffic_findings.hpp"

namespace weft::capture::test {
namespace {

using Found = std::map<std::string, std::size_t, std::less<>>;  // how many of each kind

class FindingsOfCapture final : public RpcSink, public StorageSink {
 public:
  explicit FindingsOfCapture(const std::string& name) {
    RpcTracker rpcs(*this);
    StorageTracker storage(analysis_.connections(), *this);
    TrafficFindings traffic(analysis_.connections(), *this);
    analysis_.add_sink(rpcs);
    analysis_.add_sink(storage);
    analysis_.add_sink(traffic);
    analysis_.add_operations(traffic);
    const auto source = open_capture(std::string(WEFT_TEST_DATA) + "/" + name + ".pcap.zst");
    RawPacket packet;
    while (source->next(packet)) analysis_.add(packet);
    analysis_.finish();
    rpcs.finish();
    storage.finish();
    traffic.finish();
  }
  void on_rpc(const Rpc& /*rpc*/) override {}
  void on_command(const StorageCommand& /*command*/) override {}
  void on_finding(const Finding& finding) override {
    if (is_supported(finding, analysis_.connections()[finding.connection])) {
      ++found[std::string(finding.kind)];
    }
  }

  Found found;

 private:
  Analysis analysis_;
};

struct CleanCapture {
  const char* name;
  Found found;
};

// The programs of *_errors provoke refusals. Of "repeated", each is in the capture: TCP's probes,
// and what rxe sent again.
const CleanCapture captures[] = {
    {"iser_rxe", {}},
    {"nfs3_rxe", {{"repeated", 1}}},
    {"nfs4_siw", {{"repeated", 2}}},
    {"nvme_rxe", {}},
    {"rxe_errors",
     {{"refused", 7}, {"receiver-not-ready", 1}, {"repeated", 1}, {"sequence-error", 1}}},
    {"rxe_loss_in", {{"repeated", 2}}},
    {"rxe_perf_atomic", {}},
    {"rxe_perf_read", {}},
    {"rxe_perf_write", {}},
    {"rxe_rping", {}},
    {"rxe_sizes", {}},
    {"rxe_srq", {{"repeated", 7}}},
    {"rxe_ud_pingpong", {}},
    {"rxe_udaddy", {}},
    {"siw_crc_rping", {{"repeated", 1}}},
    {"siw_errors", {{"refused", 7}, {"repeated", 1}}},
    {"siw_perf_read", {{"repeated", 4}}},
    {"siw_perf_write", {{"repeated", 4}}},
    {"siw_rping", {{"repeated", 1}}},
    {"siw_rping_ipv6", {{"repeated", 1}}},
    {"siw_sizes", {{"repeated", 2}}},
    {"smb_rxe", {{"connection-rejected", 1}, {"repeated", 1}}},
    {"srp_rxe", {}},
};

class CleanFindings : public testing::TestWithParam<CleanCapture> {};

INSTANTIATE_TEST_SUITE_P(, CleanFindings, testing::ValuesIn(captures),
                         [](const auto& test_case) { return test_case.param.name; });

TEST_P(CleanFindings, AreTrueOnes) {
  EXPECT_EQ(FindingsOfCapture(GetParam().name).found, GetParam().found);
}

}  // namespace
}  // namespace weft::capture::test
