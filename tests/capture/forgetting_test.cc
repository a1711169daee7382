// Connections that are forgotten, as there are too many: what is reported of them, which ones are
// chosen, and what happens when they continue.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "capture/made_capture.h"
#include "capture/made_roce.h"
#include "capture/report/report.h"
#include "capture/traffic_log.h"
#include "weft/capture/statistics.hpp"
#include "weft/capture/traffic_findings.hpp"

namespace weft::capture::test {
namespace {

constexpr std::size_t most_connections = 8;

struct Findings final : FindingSink {
  void on_finding(const Finding& finding) override { all.push_back(finding); }

  std::vector<Finding> all;
};

struct Forgetting : testing::Test, TrafficSink {
  Forgetting() {
    analysis.add_sink(*this);
    analysis.add_sink(statistics);
    analysis.add_sink(findings);
    analysis.add_operations(log);
    analysis.add_operations(statistics);
    analysis.add_operations(findings);
  }
  void on_forget(ConnectionId id) override {
    const Connection& connection = analysis.connections()[id];
    forgotten.push_back(connection);
    sends_of_forgotten += statistics.of(id).a.kinds[0].count;
  }
  // What was made since the last time.
  void play() {
    for (const MadePacket& packet : made) {
      analysis.add({.time_ns = now_ns += 1'000,
                    .link_type = packet.link_type,
                    .bytes = packet.bytes,
                    .wire_bytes = packet.wire_bytes});
    }
    made.clear();
  }
  void open_iwarp(std::uint16_t port) {
    IwarpTalk talk(made, {.port_a = port}, {});
    talk.connect();
    Operator(talk, Side::a).send(100);
    play();
  }
  void open_roce(std::uint32_t qp) {
    RoceTalk talk(made, {.qp_a = qp, .qp_b = 0x10'0000 + qp});
    talk.send(Side::a, 100);
    play();
  }
  [[nodiscard]] bool knows(ConnectionId id) const {
    return analysis.connections().find(id) != nullptr;
  }

  static Analysis::Limits limits() {
    Analysis::Limits limits;
    limits.connections = most_connections;
    return limits;
  }

  Analysis analysis{limits()};
  Statistics statistics;
  Findings told;
  TrafficFindings findings{analysis.connections(), told};
  OperationLog log;
  std::vector<Connection> forgotten;
  std::uint64_t sends_of_forgotten = 0;
  MadeCapture made;
  std::int64_t now_ns = 0;
};

TEST_F(Forgetting, NothingIsForgottenUpToTheLimit) {
  for (std::uint16_t i = 0; i < most_connections; ++i) open_iwarp(1'000 + i);
  EXPECT_TRUE(forgotten.empty());
  EXPECT_EQ(analysis.connections().known(), most_connections);
}

TEST_F(Forgetting, CountsThoseThatAreForgotten) {
  for (std::uint16_t i = 0; i < 100; ++i) open_iwarp(1'000 + i);
  EXPECT_EQ(analysis.connections().size(), 100U);
  EXPECT_LE(analysis.connections().known(), most_connections);
  EXPECT_EQ(analysis.connections().forgotten(), forgotten.size());
  std::uint64_t frames = analysis.connections().forgotten_frames();
  for (const Connection& one : analysis.connections()) frames += one.frames;
  EXPECT_EQ(frames, analysis.totals().frames);
}

TEST_F(Forgetting, TellsAllThatIsKnownOfThem) {
  IwarpTalk talk(made, {}, {});
  talk.connect();
  talk.fpdu(Side::a, weft::test::read_request(1, {.sink_stag = 5,
                                                  .sink_offset = 0,
                                                  .size_bytes = 64,
                                                  .source_stag = 7,
                                                  .source_offset = 0}));
  play();
  for (std::uint16_t i = 0; i < 20; ++i) open_iwarp(1'000 + i);
  ASSERT_FALSE(knows(0));
  EXPECT_EQ(forgotten[0].id, 0U);
  EXPECT_EQ(forgotten[0].end, Connection::End::forgotten);
  ASSERT_FALSE(log.operations.empty());
  EXPECT_EQ(log.operations[0].outcome, Operation::Outcome::unanswered);
  ASSERT_EQ(told.all.size(), 1U);
  EXPECT_EQ(told.all[0].kind, finding::unanswered_request);
  // Sums were complete when the others were forgotten, with one Send each.
  EXPECT_EQ(sends_of_forgotten, forgotten.size() - 1);
  analysis.finish();
  findings.finish();
  EXPECT_EQ(told.all.size(), 1U) << "told again";
}

TEST_F(Forgetting, ThoseThatAreOverGoFirst) {
  open_iwarp(999);
  for (std::uint16_t i = 0; i < 30; ++i) {
    IwarpTalk talk(made, {.port_a = static_cast<std::uint16_t>(1'000 + i)}, {});
    talk.connect();
    talk.close();
    play();
  }
  EXPECT_TRUE(knows(0)) << "it was silent for longest, but is open";
}

TEST_F(Forgetting, ThenThoseThatAreSilentForLongest) {
  RoceTalk busy(made, {.qp_a = 0x7, .qp_b = 0x8});
  busy.send(Side::a, 10);
  play();
  for (std::uint32_t i = 0; i < 30; ++i) {
    open_roce(0x100 + i);
    busy.send(Side::a, 10);
    play();
  }
  EXPECT_TRUE(knows(0));
  EXPECT_FALSE(knows(1));
}

TEST_F(Forgetting, WhatGoesOnInIwarpIsAnotherConnection) {
  IwarpTalk talk(made, {}, {});
  talk.connect();
  Operator a(talk, Side::a);
  a.send(100);
  play();
  for (std::uint16_t i = 0; i < 20; ++i) open_iwarp(1'000 + i);
  ASSERT_FALSE(knows(0));
  const std::size_t before = analysis.connections().size();
  for (int i = 0; i < 40; ++i) a.send(100);
  play();
  ASSERT_EQ(analysis.connections().size(), before + 1);
  const auto id = static_cast<ConnectionId>(before);
  EXPECT_EQ(analysis.connections()[id].beginning, Connection::Beginning::traffic);
  analysis.finish();
  EXPECT_EQ(log.count(Operation::Kind::send), 1 + 20 + 40U);
}

TEST_F(Forgetting, WhatGoesOnInRoceIsAnotherConnection) {
  RoceTalk talk(made, {});
  talk.connect();
  talk.send(Side::a, 100);
  play();
  for (std::uint32_t i = 0; i < 20; ++i) open_roce(0x100 + i);
  ASSERT_FALSE(knows(0));
  const std::size_t before = analysis.connections().size();
  talk.send(Side::a, 100);
  talk.read(Side::a, 7, 0x1000, 1'000);
  talk.disconnect();  // of a connection that is not known
  play();
  EXPECT_EQ(analysis.connections().size(), before + 1);
  analysis.finish();
  EXPECT_EQ(log.count(Operation::Kind::send), 1 + 20 + 1U);
  EXPECT_EQ(log.count(Operation::Kind::read), 1U);
}

}  // namespace
}  // namespace weft::capture::test
