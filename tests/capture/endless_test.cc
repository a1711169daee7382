// Input without an end: memory stops growing, whatever it is that never ends. Each script is played
// with small limits, which it reaches in its first third, and without any, to see that it would
// grow.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <string_view>

#include "capture/made_capture.h"
#include "capture/made_roce.h"
#include "capture/report/report.h"
#include "capture/report/report_html.h"
#include "capture/rpc_builder.h"
#include "weft/capture/credit_findings.hpp"
#include "weft/capture/rpc_tracker.hpp"
#include "weft/capture/storage_tracker.hpp"
#include "weft/capture/traffic_findings.hpp"
#include "wire/tcp.h"

namespace {

std::size_t bytes_in_use = 0;

}  // namespace

// Where they are inlined, the compiler takes free() for the wrong partner of operator new.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  void* const made = std::malloc(size);
  if (made != nullptr) bytes_in_use += malloc_usable_size(made);
  return made;
}

[[gnu::noinline]] void* operator new(std::size_t size) {
  void* const made = operator new(size, std::nothrow);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory != nullptr) bytes_in_use -= malloc_usable_size(memory);
  std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace weft::capture::test {
namespace {

struct Limits {
  Analysis::Limits analysis;
  RpcLimits rpc;
};

Limits small_limits() {
  Limits limits;
  limits.analysis.connections = 32;
  limits.analysis.operations = {.waiting = 256, .waiting_in_all = 512};
  limits.analysis.search_bytes = 256 * 1024;
  limits.analysis.tcp.flows = 64;
  limits.analysis.tcp.held_bytes = 256 * 1024;
  limits.analysis.infiniband.held_bytes = 256 * 1024;
  limits.analysis.infiniband.connection.answers.open_requests = 64;
  limits.analysis.infiniband.undecided_flows = 16;
  limits.analysis.infiniband.alone = 16;
  limits.analysis.infiniband.services = 16;
  limits.rpc = {.open_bytes = 256 * 1024,
                .open_calls = 64,
                .answered_calls = 64,
                .open_calls_in_all = 128,
                .call_bytes = 256 * 1024,
                .answered_in_all = 128};
  return limits;
}

Limits no_limits() {
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  Limits limits;
  limits.analysis.connections = none;
  limits.analysis.operations = {.waiting = none, .waiting_in_all = none};
  limits.analysis.tcp.flows = none;
  limits.analysis.tcp.held_bytes = none;
  limits.analysis.tcp.stream.held_bytes = none;
  limits.analysis.tcp.stream.held_segments = none;
  limits.analysis.infiniband.held_bytes = none;
  limits.analysis.infiniband.connection.answers.open_requests = none;
  limits.rpc = {.open_bytes = none,
                .open_calls = none,
                .answered_calls = none,
                .open_calls_in_all = none,
                .call_bytes = none,
                .answered_in_all = none};
  return limits;
}

// Whether a page is drawn too. It keeps up to 3000 operations of each of 256 connections, so that a
// script with many connections would have to be long to reach that.
enum class Page { no, yes };

// All that `weft dissect` has.
class Everything : private OperationSink,
                   private RpcSink,
                   private StorageSink,
                   private TrafficSink {
 public:
  Everything(const Limits& limits, Page page)
      : draws_(page == Page::yes),
        analysis_(limits.analysis),
        rpcs_(*this, limits.rpc),
        findings_(analysis_.connections(), *this),
        credits_(analysis_.connections(), *this),
        text_(text_report({.name = "endless"}, nowhere)),
        page_({.name = "endless"}, analysis_, nowhere) {
    analysis_.add_sink(*this);
    analysis_.add_sink(statistics_);
    analysis_.add_sink(rpcs_);
    analysis_.add_sink(storage_);
    analysis_.add_sink(findings_);
    analysis_.add_sink(credits_);
    if (draws_) analysis_.add_sink(page_);
    analysis_.add_operations(*this);
    analysis_.add_operations(findings_);
  }

  void feed(const MadeCapture& capture, std::int64_t later_ns) {
    for (const MadePacket& packet : capture) {
      analysis_.add({.time_ns = packet.time_ns + later_ns,
                     .link_type = packet.link_type,
                     .bytes = packet.bytes,
                     .wire_bytes = packet.wire_bytes});
    }
  }

 private:
  static void nowhere(std::string_view) {}

  [[nodiscard]] Results results() const { return {analysis_, statistics_, rpcs_, storage_}; }
  void on_operation(const Operation& operation) override {
    statistics_.on_operation(operation);
    text_->operation(operation, analysis_);
    if (draws_) page_.operation(operation, analysis_);
  }
  void on_rpc(const Rpc& rpc) override {
    text_->rpc(rpc, analysis_);
    if (draws_) page_.rpc(rpc, analysis_);
  }
  void on_command(const StorageCommand& command) override {
    text_->command(command, analysis_);
    if (draws_) page_.command(command, analysis_);
  }
  void on_finding(const Finding& finding) override {
    text_->finding(finding, analysis_);
    if (draws_) page_.finding(finding, analysis_);
  }
  void on_forget(ConnectionId id) override {
    text_->forgotten(analysis_.connections()[id], results());
    if (draws_) page_.forgotten(analysis_.connections()[id], results());
  }

  bool draws_;
  Analysis analysis_;
  Statistics statistics_;
  RpcTracker rpcs_;
  StorageTracker storage_{analysis_.connections(), *this};
  TrafficFindings findings_;
  CreditFindings credits_;
  std::unique_ptr<Report> text_;
  HtmlReport page_;
};

// The page keeps the rows of up to 2000 connections that are forgotten, and 3000 operations of one.
constexpr std::uint32_t first_rounds = 3'200;
constexpr std::uint32_t all_rounds = 3 * first_rounds;

// By how much the most memory of the later rounds exceeds that of the first ones. `play(made,
// round)` adds the packets of a round.
std::int64_t growth(const Limits& limits, Page page, auto&& play) {
  constexpr std::int64_t round_ns = 1'000'000'000;
  const auto everything = std::make_unique<Everything>(limits, page);
  std::size_t most_at_first = 0;
  std::size_t most = 0;
  MadeCapture made;
  for (std::uint32_t round = 0; round < all_rounds; ++round) {
    play(made, round);
    everything->feed(made, round * round_ns);
    made.clear();
    most = std::max(most, bytes_in_use);
    if (round < first_rounds) most_at_first = most;
  }
  return static_cast<std::int64_t>(most - most_at_first);
}

// `make_play()`: a script from its beginning.
void expect_bounded(auto make_play, Page page = Page::yes) {
  // Numbers of frames become longer in what the page keeps.
  constexpr std::int64_t slack_bytes = 128 * 1024;
  EXPECT_LE(growth(small_limits(), page, make_play()), slack_bytes);
  EXPECT_GT(growth(no_limits(), page, make_play()), slack_bytes) << "the script proves nothing";
}

// Another connection in each round.
TcpOptions another(std::uint32_t round) {
  return {.port_a = static_cast<std::uint16_t>(10'000 + round % 50'000),
          .host_a = static_cast<std::uint8_t>(10 + round / 50'000)};
}

RoceOptions another_pair(std::uint32_t round) {
  return {.qp_a = 0x1000 + round, .qp_b = 0x80'0000 + round};
}

TEST(Endless, ConnectionsThatWereClosed) {
  expect_bounded([] {
    return [](MadeCapture& made, std::uint32_t round) {
      IwarpTalk talk(made, another(round), {});
      talk.connect();
      Operator a(talk, Side::a);
      a.send(100);
      a.read(7, 0x1000, 50);
      talk.close();
    };
  });
}

TEST(Endless, ConnectionsThatWereNeverClosed) {
  expect_bounded([] {
    return [](MadeCapture& made, std::uint32_t round) {
      IwarpTalk talk(made, another(round), {});
      talk.connect();
      Operator(talk, Side::a).write(7, 0x1000, 300);
    };
  });
}

TEST(Endless, TcpConnectionsWithoutAnAnswer) {
  expect_bounded([] {
    return [](MadeCapture& made, std::uint32_t round) {
      TcpTalk(made, another(round)).segment(Side::a, {}, wire::tcp_flag::syn);
    };
  });
}

TEST(Endless, SegmentsBehindGapsThatAreNeverFilled) {
  expect_bounded([] {
    return [](MadeCapture& made, std::uint32_t round) {
      IwarpTalk talk(made, another(round), {});
      talk.connect();
      Operator a(talk, Side::a);
      a.send(500);
      made.pop_back();
      for (int i = 0; i < 4; ++i) a.send(500);
    };
  });
}

TEST(Endless, QueuePairsByTraffic) {
  expect_bounded([] {
    return [](MadeCapture& made, std::uint32_t round) {
      RoceTalk talk(made, another_pair(round));
      talk.send(Side::a, 300);
      talk.read(Side::a, 7, 0x1000, 100);
    };
  });
}

TEST(Endless, QueuePairsOfWhichOneDirectionIsSeen) {
  expect_bounded([] {
    return [](MadeCapture& made, std::uint32_t round) {
      RoceTalk talk(made, another_pair(round));
      talk.acknowledge_all(false);
      talk.send(Side::a, 300);
    };
  });
}

TEST(Endless, QueuePairsOfTheConnectionManager) {
  expect_bounded([] {
    return [](MadeCapture& made, std::uint32_t round) {
      RoceTalk talk(made, another_pair(round));
      talk.connect();
      talk.send(Side::b, 300);
      if (round % 2 == 0) talk.disconnect();
    };
  });
}

// One conversation that goes on for all rounds.
template <typename Talk>
class Going {
 public:
  template <typename... Options>
  explicit Going(const Options&... options)
      : capture_(std::make_unique<MadeCapture>()),
        talk_(std::make_unique<Talk>(*capture_, options...)) {}

  [[nodiscard]] Talk& talk() const { return *talk_; }
  // What it has printed since the last time.
  void move_to(MadeCapture& made) const { made.swap(*capture_); }

 private:
  std::unique_ptr<MadeCapture> capture_;
  std::unique_ptr<Talk> talk_;
};

TEST(Endless, ReadsWithoutAnAnswer) {
  expect_bounded([] {
    Going<IwarpTalk> going(TcpOptions{}, MpaOptions{});
    going.talk().connect();
    return [going = std::move(going)](MadeCapture& made, std::uint32_t round) {
      going.talk().fpdu(Side::a,
                        weft::test::read_request(round + 1, {.sink_stag = 5,
                                                             .sink_offset = 64ULL * round,
                                                             .size_bytes = 64,
                                                             .source_stag = 7,
                                                             .source_offset = 64ULL * round}));
      going.move_to(made);
    };
  });
}

TEST(Endless, ReadsOfRoceWithoutAnAnswer) {
  expect_bounded([] {
    Going<RoceTalk> going(RoceOptions{});
    going.talk().connect();
    return [going = std::move(going)](MadeCapture& made, std::uint32_t round) {
      going.talk().read(Side::a, 7, 0x1000 + round, 200);
      going.move_to(made);
      std::erase_if(made, [&](const MadePacket& packet) { return &packet == &made.back(); });
    };
  });
}

TEST(Endless, SendsThatNobodyAcknowledges) {
  expect_bounded([] {
    Going<RoceTalk> going(RoceOptions{});
    going.talk().connect();
    going.talk().acknowledge_all(false);
    return [going = std::move(going)](MadeCapture& made, std::uint32_t) {
      going.talk().send(Side::a, 10);
      going.move_to(made);
    };
  });
}

// Calls with chunks that are never moved whole, on `connections` in turn.
auto unanswered_calls(std::size_t connections) {
  std::vector<Going<RoceTalk>> all;
  for (std::uint32_t i = 0; i < connections; ++i) {
    all.emplace_back(another_pair(i));
    all.back().talk().connect();
  }
  return [all = std::move(all)](MadeCapture& made, std::uint32_t round) {
    const Going<RoceTalk>& going = all[round % all.size()];
    RdmaHeader header{.xid = round + 1};
    header.lists.reads = {{40, {round, 2'000, 0x1000}}};
    header.lists.writes = {{{round + 0x100'0000, 2'000, 0x9000}}};
    going.talk().send(Side::a, Bytes(rdma_message(header, rpc_call(round + 1, 100'003, 3, 6))));
    going.talk().read(Side::b, round, 0x1000, 1'000);
    going.move_to(made);
  };
}

TEST(Endless, CallsWithoutAReply) {
  expect_bounded([] { return unanswered_calls(1); });
}

TEST(Endless, CallsWithoutAReplyOnManyConnections) {
  expect_bounded([] { return unanswered_calls(24); }, Page::no);
}

TEST(Endless, CallsWithTheirReplies) {
  expect_bounded([] {
    Going<RoceTalk> going(RoceOptions{});
    going.talk().connect();
    return [going = std::move(going)](MadeCapture& made, std::uint32_t round) {
      const std::uint32_t xid = round + 1;
      going.talk().send(Side::a, Bytes(rdma_message({.xid = xid}, rpc_call(xid, 100'003, 3, 0))));
      going.talk().send(Side::b, Bytes(rdma_message({.xid = xid}, rpc_reply(xid))));
      going.move_to(made);
    };
  });
}

}  // namespace
}  // namespace weft::capture::test
