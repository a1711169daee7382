// Captures of one connection with clocks that differ: the difference is measured, said and
// corrected.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "capture/made_capture.h"
#include "capture/made_roce.h"
#include "capture/traffic_log.h"
#include "weft/capture/packet_source.hpp"

namespace weft::capture::test {
namespace {

constexpr std::int64_t way_ns = 2'000;  // from one place to the other

bool from_a(const MadePacket& packet) {
  constexpr std::size_t source_at = 14 + 15;  // the last byte of the source address
  return packet.bytes[source_at] == std::byte{2};
}

MadeCapture roce() {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  for (int i = 0; i < 20; ++i) {
    talk.send(Side::a, 100);
    talk.send(Side::b, 100);
  }
  return capture;
}

MadeCapture iwarp() {
  MadeCapture capture;
  IwarpTalk talk(capture, {}, {});
  talk.connect();
  Operator a(talk, Side::a);
  Operator b(talk, Side::b);
  for (int i = 0; i < 20; ++i) {
    a.send(100);
    b.send(100);
  }
  talk.close();
  return capture;
}

struct ClocksTest : testing::Test {
  ClocksTest() {
    std::string path = testing::TempDir() + "weft-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error(path);
    folder = path;
  }
  ~ClocksTest() override { std::filesystem::remove_all(folder); }

  CaptureFile write(const std::string& name, const MadeCapture& capture) {
    const Content file = pcap_file(capture);
    const std::string path = folder / name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()),
               static_cast<std::streamsize>(file.size()));
    return {path};
  }

  std::filesystem::path folder;
};

// What side a and side b would capture: packets need time between them. `both`: each has all
// packets; otherwise each has those that it sent.
std::pair<MadeCapture, MadeCapture> at_both_ends(const MadeCapture& all, std::int64_t ahead_ns,
                                                 bool both) {
  MadeCapture at_a;
  MadeCapture at_b;
  for (const MadePacket& packet : all) {
    MadePacket here = packet;
    MadePacket there = packet;
    (from_a(packet) ? there : here).time_ns += way_ns;
    there.time_ns += ahead_ns;
    if (both || from_a(packet)) at_a.push_back(here);
    if (both || !from_a(packet)) at_b.push_back(there);
  }
  return {at_a, at_b};
}

TEST_F(ClocksTest, AreMeasuredByCommonPacketsAndByAnswers) {
  for (const bool both : {true, false}) {
    for (const MadeCapture& all : {roce(), iwarp()}) {
      for (const std::int64_t ahead_ns :
           std::initializer_list<std::int64_t>{-3'000'000'000, -500'000, 700'000, 9'000'000'000}) {
        const auto [at_a, at_b] = at_both_ends(all, ahead_ns, both);
        std::vector<CaptureFile> files{write("a.pcap", at_a), write("b.pcap", at_b)};
        const auto found = measure_clocks(files);
        ASSERT_EQ(found.size(), 1U) << both << ' ' << ahead_ns;
        EXPECT_EQ(found[0].ahead_ns, files[1].clock_ahead_ns);
        EXPECT_EQ(found[0].reference, files[0].path);
        EXPECT_EQ(files[0].clock_ahead_ns, 0);
        EXPECT_LE(std::abs(files[1].clock_ahead_ns - ahead_ns), 20'000) << ahead_ns;
      }
    }
  }
}

TEST_F(ClocksTest, ThatAgreeAreLeftAlone) {
  for (const bool both : {true, false}) {
    const auto [at_a, at_b] = at_both_ends(iwarp(), 0, both);
    std::vector<CaptureFile> files{write("a.pcap", at_a), write("b.pcap", at_b)};
    EXPECT_TRUE(measure_clocks(files).empty());
    EXPECT_EQ(files[1].clock_ahead_ns, 0);
  }
}

TEST_F(ClocksTest, OfUnrelatedCapturesAreLeftAlone) {
  MadeCapture other;
  RoceTalk talk(other, {.host_a = 7, .host_b = 8});
  for (int i = 0; i < 20; ++i) talk.send(Side::a, 100);
  std::vector<CaptureFile> files{write("a.pcap", roce()), write("b.pcap", other)};
  EXPECT_TRUE(measure_clocks(files).empty());
}

TEST_F(ClocksTest, CorrectedCapturesAreOneTrace) {
  for (const MadeCapture& all : {roce(), iwarp()}) {
    const auto [at_a, at_b] = at_both_ends(all, -50'000'000, false);
    std::vector<CaptureFile> files{write("a.pcap", at_a), write("b.pcap", at_b)};
    (void)measure_clocks(files);
    Analysis analysis;
    TrafficLog traffic;
    OperationLog operations;
    analysis.add_sink(traffic);
    analysis.add_operations(operations);
    const auto source = merge_captures(files);
    RawPacket packet;
    while (source->next(packet)) analysis.add(packet);
    analysis.finish();
    EXPECT_EQ(analysis.connections().size(), 1U);
    ASSERT_EQ(operations.operations.size(), 40U);
    for (const Operation& one : operations.operations) {
      EXPECT_EQ(one.outcome, Operation::Outcome::complete);
      EXPECT_GE(one.latency_ns(), 0);
      EXPECT_LT(one.latency_ns(), 1'000'000);
    }
  }
}

}  // namespace
}  // namespace weft::capture::test
