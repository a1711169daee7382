// RPCs over both transports, in captures that are damaged under a seed: each exchange is byte-exact
// or reported as incomplete. Where the capture lacks nothing, all are byte-exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "capture/alterations.h"
#include "capture/damage.h"
#include "capture/iwarp_messages.h"
#include "capture/made_roce.h"
#include "capture/made_rpcs.h"
#include "capture/meant_rpcs.h"
#include "weft/capture/analysis.hpp"
#include "weft/capture/rpc_findings.hpp"
#include "weft/capture/traffic_findings.hpp"

namespace weft::capture::test {
namespace {

constexpr std::uint32_t rounds = 12;
constexpr std::size_t rpcs_in_round = 5;

struct Exchanges {
  Conversation conversation;
  MeantByXid meant;
};

void run_rounds(auto& talk, Exchanges& made) {
  for (std::uint32_t round = 0; round < rounds; ++round) {
    Rpcs rpcs(1 + round % 3, 300 + 37 * round, 100 * round);
    rpcs.run(talk);
    made.meant.merge(rpcs.meant);
  }
}

Exchanges over_iwarp(const MpaOptions& mpa) {
  Exchanges made;
  IwarpTalk talk(made.conversation.capture, {.mss_bytes = 300}, mpa);
  talk.connect();
  made.conversation.handshake_packets = made.conversation.capture.size();
  IwarpMessages messages(talk, 250);
  run_rounds(messages, made);
  return made;
}

Exchanges over_infiniband(RoceOptions::Carrier carrier, bool managed) {
  Exchanges made;
  RoceTalk talk(made.conversation.capture, {.carrier = carrier});
  if (managed) talk.connect();
  made.conversation.handshake_packets = made.conversation.capture.size();
  run_rounds(talk, made);
  return made;
}

struct Way {
  const char* name;
  Exchanges (*make)();
};

using Carrier = RoceOptions::Carrier;

const Way ways[] = {
    {"Iwarp", [] { return over_iwarp({}); }},
    {"IwarpMarkersAnywhere",
     [] { return over_iwarp({.markers_a = true, .markers_b = true, .aligned = false}); }},
    {"Roce", [] { return over_infiniband(Carrier::ipv4, true); }},
    {"RoceWithoutHandshake", [] { return over_infiniband(Carrier::ipv6, false); }},
    {"Infiniband", [] { return over_infiniband(Carrier::native, true); }},
    {"InfinibandWithoutHandshake", [] { return over_infiniband(Carrier::native_global, false); }},
};

using Kinds = std::set<std::string_view>;

// What an analysis makes of a capture, with the findings about the transport.
RpcLog analysed(const MadeCapture& capture) {
  RpcLog log;
  Analysis analysis;
  RpcTracker tracker(log, {}, &analysis.connections());
  TrafficFindings findings(analysis.connections(), log);
  analysis.add_sink(tracker);
  analysis.add_sink(findings);
  feed(analysis, capture);
  tracker.finish();
  findings.finish();
  std::erase_if(log.findings, [&](const Finding& finding) {
    return !is_supported(finding, analysis.connections()[finding.connection]);
  });
  return log;
}

// The programs did nothing wrong: each finding states what the capture or the network did.
void expect_findings_about(const RpcLog& log, const Kinds& kinds) {
  for (const Finding& finding : log.findings) {
    EXPECT_TRUE(kinds.contains(finding.kind)) << finding.kind << ": " << finding.sentence;
  }
}

bool is_whole(const RpcMessage& message) {
  return message.message.whole() &&
         std::ranges::all_of(message.chunks, [](const Assembled& chunk) { return chunk.whole(); });
}

// An exchange that is not whole has a finding with its XID, which states what is missing.
void expect_named(const RpcLog& log) {
  const auto has = [&](std::uint32_t xid, std::string_view kind) {
    return std::ranges::any_of(log.findings, [&](const Finding& finding) {
      return finding.xid == xid && finding.kind == kind;
    });
  };
  const auto only_missing = [](const Assembled& bytes) {
    return std::ranges::all_of(
        bytes.flaws(), [](const FlawedRange& range) { return range.flaw == Flaw::missing; });
  };
  bool matched = false;
  for (const Rpc& rpc : log.rpcs) {
    SCOPED_TRACE("XID " + std::to_string(rpc.xid));
    EXPECT_TRUE(!rpc.call || only_missing(rpc.call->message)) << describe_flaws(rpc.call->message);
    EXPECT_TRUE(!rpc.reply || only_missing(rpc.reply->message));
    if (rpc.call && rpc.reply) {
      matched = true;
      EXPECT_EQ(has(rpc.xid, finding::incomplete), !is_whole(*rpc.call) || !is_whole(*rpc.reply));
    } else if (rpc.call) {
      EXPECT_TRUE(has(rpc.xid, finding::unanswered));
    } else if (matched) {
      // Before, the capture seems to begin in the middle of the exchanges.
      EXPECT_TRUE(has(rpc.xid, finding::without_call));
    }
  }
}

void expect_exact_or_reported(const Exchanges& made, const Damaged& damaged, bool changed) {
  const RpcLog log = analysed(damaged.capture);
  const std::size_t whole = whole_ones(log, made.meant);
  if (damaged.lacking == 0) {
    EXPECT_EQ(log.rpcs.size(), rounds * rpcs_in_round);
    EXPECT_EQ(whole, rounds * rpcs_in_round);
    expect_findings_about(log, {"repeated"});
    return;
  }
  Kinds kinds = {"repeated",           "not-captured",      "bad-checksum",
                 "unanswered-request", finding::incomplete, finding::unanswered,
                 finding::without_call};
  // The changed byte may be one of a marker. It may hide a Read request, so that the response seems
  // to have none.
  if (changed) kinds.insert({"bad-marker", "answer-without-request"});
  expect_findings_about(log, kinds);
  expect_named(log);
}

class ExchangeSweep : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(, ExchangeSweep, testing::ValuesIn(ways),
                         [](const auto& test_case) { return test_case.param.name; });

TEST_P(ExchangeSweep, IsExactOrReported) {
  const bool long_run = std::getenv("WEFT_TEST_LONG") != nullptr;
  const Exchanges made = GetParam().make();
  const Damage damages[] = {
      {},
      {.captured_twice = 20},
      {.before_tap = 100},
      {.after_tap = 100},
      {.by_tap = 100},
      {.changed = 100},
      {.before_tap = 200, .after_tap = 200, .by_tap = 200, .captured_twice = 50, .changed = 200},
  };
  for (const std::size_t window : {1, 2, 8, 64, 512}) {
    for (Damage damage : damages) {
      damage.window = window;
      std::vector<std::uint64_t> seeds = weft::test::seeds(long_run ? 60 : 3);
      // These lose the first packets after a handshake (10, 15, 75), have the first call late (29),
      // change the first packet of all (67), move replies far behind later calls (82), or change
      // the length of an FPDU (160).
      if (seeds.size() > 1) seeds.insert(seeds.end(), {10, 15, 29, 67, 75, 82, 160});
      for (const std::uint64_t seed : seeds) {
        SCOPED_TRACE(testing::Message()
                     << weft::test::seed_trace(seed) << ", window " << window << ", one of "
                     << damage.before_tap << " lost before, " << damage.after_tap << " after, "
                     << damage.by_tap << " by the capture, " << damage.captured_twice << " twice, "
                     << damage.changed << " changed");
        Random random(seed);
        expect_exact_or_reported(made, damaged(made.conversation, damage, random),
                                 damage.changed != 0);
      }
    }
  }
}

// What a tap does to the whole capture, and not to single packets.
struct Tap {
  const char* name;
  MadeCapture (*make)(const MadeCapture& capture, Random& random);
  // What is found if no packet is damaged.
  Kinds kinds;
};

// A port that mirrors both directions shows a packet twice, within microseconds.
MadeCapture mirrored(const MadeCapture& capture, Random& /*random*/) {
  MadeCapture out;
  for (const MadePacket& packet : capture) {
    out.push_back(packet);
    out.push_back(later(packet, 2'000));
  }
  return out;
}

MadeCapture one_direction(const MadeCapture& capture, Random& random) {
  const std::vector<SentPacket> sent = sent_packets(capture);
  const bool first = random.chance(2);
  MadeCapture out;
  for (std::size_t i = 0; i < capture.size(); ++i) {
    if ((sent[i].source == sent[0].source) == first) out.push_back(capture[i]);
  }
  return out;
}

MadeCapture from_the_middle(const MadeCapture& capture, Random& random) {
  const auto from =
      static_cast<std::ptrdiff_t>(capture.size() / 8 + random.below(capture.size() / 2));
  return {capture.begin() + from, capture.end()};
}

const Tap taps[] = {
    {"mirror", mirrored, {}},
    {"snap length", [](const auto& c, auto& r) { return cut(c, 90 + r.below(120)); }, {}},
    {"one direction", one_direction, {finding::one_direction}},
    {"begun in the middle", from_the_middle, {}},
};

class TapSweep : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(, TapSweep, testing::ValuesIn(ways),
                         [](const auto& test_case) { return test_case.param.name; });

// Whatever the tap does, what is complete is exact, and nothing is found that the tap or the loss
// does not explain.
TEST_P(TapSweep, IsExactOrReported) {
  const bool long_run = std::getenv("WEFT_TEST_LONG") != nullptr;
  const Exchanges made = GetParam().make();
  for (const Tap& tap : taps) {
    for (const Damage& damage : {Damage{}, Damage{.window = 8}, Damage{.by_tap = 100},
                                 Damage{.window = 64, .after_tap = 100}}) {
      std::vector<std::uint64_t> seeds = weft::test::seeds(long_run ? 60 : 3);
      // These began where the reply to a call was recognised before the call, and between two Reads
      // of a chunk.
      if (seeds.size() > 1) seeds.insert(seeds.end(), {5, 50, 91});
      for (const std::uint64_t seed : seeds) {
        SCOPED_TRACE(testing::Message()
                     << weft::test::seed_trace(seed) << ", " << tap.name << ", window "
                     << damage.window << ", one of " << damage.by_tap << " lost by the capture, "
                     << damage.after_tap << " after it");
        Random random(seed);
        const MadeCapture capture =
            tap.make(damaged(made.conversation, damage, random).capture, random);
        RpcLog log = analysed(capture);
        const std::size_t whole = whole_ones(log, made.meant);
        Kinds kinds = tap.kinds;
        if (damage.after_tap != 0) kinds.insert("repeated");
        if (damage.by_tap != 0) {
          kinds.insert({"not-captured", "unanswered-request", finding::incomplete,
                        finding::unanswered, finding::without_call});
        }
        // Packets from before the beginning may be the ones that are late.
        const bool disorder = damage.window > 1 || damage.after_tap != 0;
        if (tap.make == from_the_middle && disorder) {
          kinds.insert(
              {"not-captured", finding::incomplete, finding::unanswered, finding::without_call});
        }
        // In a connection that was open before, a Read response may belong to a Read before it, if
        // several use the same sink.
        std::erase_if(log.findings, [&](const Finding& finding) {
          return tap.make == from_the_middle && finding.kind == finding::incomplete &&
                 finding.sentence.find("cannot be assigned") != std::string::npos;
        });
        expect_findings_about(log, kinds);
        if (tap.make == mirrored && damage.by_tap == 0) {
          EXPECT_EQ(whole, rounds * rpcs_in_round);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::capture::test
