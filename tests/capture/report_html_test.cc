// What a page holds, and that it stays small.
#include "capture/report/report_html.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "capture/made_roce.h"
#include "weft/capture/rpc_tracker.hpp"
#include "weft/capture/storage_tracker.hpp"

namespace weft::capture::test {
namespace {

TEST(TimeSeries, WidensWithoutLosingAnything) {
  TimeSeries series;
  for (std::int64_t at = 0; at < 10'000; ++at) series.add(at * 100'000, 3);
  EXPECT_LE(series.size(), TimeSeries::max_buckets);
  EXPECT_GT(series.size(), TimeSeries::max_buckets / 2 - 1);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < series.size(); ++i) sum += series[i];
  EXPECT_EQ(sum, 30'000U);
  // Evenly: each bucket but the last has its share.
  const std::uint64_t share = series.width_ns() * 3 / 100'000;
  for (std::size_t i = 0; i + 1 < series.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(series[i]), static_cast<double>(share), 6.0);
  }
}

TEST(TimeSeries, TakesWhatIsEarlierForTheBeginning) {
  TimeSeries series;
  series.add(-5, 7);
  EXPECT_EQ(series[0], 7U);
}

TEST(ThinnedList, IsSpreadEvenly) {
  ThinnedList<int> list(100);
  for (int i = 0; i < 10'000; ++i) list.add(i);
  EXPECT_EQ(list.seen(), 10'000U);
  EXPECT_LE(list.items().size(), 100U);
  EXPECT_GE(list.items().size(), 50U);
  const int stride = list.items()[1] - list.items()[0];
  for (std::size_t i = 0; i < list.items().size(); ++i) {
    EXPECT_EQ(list.items()[i], static_cast<int>(i) * stride);
  }
}

nlohmann::json data_of(const std::string& page) {
  constexpr std::string_view mark = "id=\"data\">";
  const std::size_t begin = page.find(mark) + mark.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

struct Drawn {
  Analysis analysis;
  Statistics statistics;
  std::string page;

  void draw(const MadeCapture& capture, auto act, const Selection& selection = {}) {
    struct Nobody final : RpcSink, StorageSink {
      void on_command(const StorageCommand&) override {}
      void on_rpc(const Rpc&) override {}
      void on_finding(const Finding&) override {}
    } nobody;
    RpcTracker rpcs(nobody);
    const StorageTracker storage(analysis.connections(), nobody);
    HtmlReport report({.name = "<made>"}, analysis,
                      [this](std::string_view text) { page += text; });
    analysis.add_sink(report);
    feed(analysis, capture);
    const std::uint64_t findings = act(report);
    report.finish({analysis, statistics, rpcs, storage, findings}, selection);
  }
};

MadeCapture of_connections(std::uint32_t count) {
  MadeCapture capture;
  for (std::uint32_t i = 0; i < count; ++i) {
    RoceTalk talk(capture, {.qp_a = 0x100 + i, .qp_b = 0x10'000 + i});
    talk.connect();
    talk.send(Side::a, 100 + i);
  }
  return capture;
}

Operation operation(ConnectionId connection, std::uint64_t number) {
  Operation made;
  made.number = number;
  made.connection = connection;
  made.kind = Operation::Kind::write;
  made.bytes = 1'000'000'000 + number;
  made.key = 0xFFFF'FFFF;
  made.address = number << 30;
  made.start = {1'000'000 + number, static_cast<std::int64_t>(number) * 1'000'000};
  made.end = {1'000'001 + number, made.start.time_ns + 700'000};
  made.confirmed = true;
  made.confirmation = {1'000'002 + number,
                       made.start.time_ns + 800'000 + static_cast<std::int64_t>(number % 97)};
  return made;
}

TEST(HtmlReport, StaysBelowTenMegabytesWhateverTheTrafficIs) {
  constexpr std::uint32_t connections = 1'300;
  Drawn drawn;
  drawn.draw(of_connections(connections), [&](HtmlReport& report) {
    for (std::uint64_t number = 0; number < 5'000; ++number) {
      for (ConnectionId id = 0; id < 300; ++id) {
        report.operation(operation(id, 300 * number + id), drawn.analysis);
      }
    }
    for (ConnectionId id = 0; id < 300; ++id) {
      for (std::uint64_t frame = 1; frame <= 1'000; ++frame) {
        const Origin origin{id, Side::b, {1'000'000'000 + frame, 10'000'000'000}};
        report.on_repeat(origin, 1);
        report.on_gap(origin, {.packets = 1});
        report.on_refusal(origin, {.kind = Refusal::Kind::receiver_not_ready});
        report.on_refusal(origin, {.kind = Refusal::Kind::sequence_error});
        report.on_refusal(origin, {.kind = Refusal::Kind::access_error});
      }
    }
    const Finding finding{.kind = "repeated",
                          .connection = 1,
                          .sentence = std::string(300, 'x'),
                          .stamps = std::vector<Stamp>(16, {1'000'000'000, 10'000'000'000})};
    constexpr std::uint64_t findings = 50'000;
    for (std::uint64_t i = 0; i < findings; ++i) report.finding(finding, drawn.analysis);
    return findings;
  });
  EXPECT_LT(drawn.page.size(), 10'000'000U);
  const nlohmann::json data = data_of(drawn.page);
  EXPECT_EQ(data["connections"].size(), HtmlReport::max_rows);
  EXPECT_EQ(data["trace"][0]["connections"], connections);
  EXPECT_EQ(data["findings"].size(), HtmlReport::max_findings);
  EXPECT_EQ(data["trace"][0]["findings"], 50'000);
  EXPECT_LE(data["details"].size(), HtmlReport::max_detailed);
  std::size_t operations = 0;
  for (const auto& detail : data["details"]) operations += detail["operations"].size();
  EXPECT_LE(operations, HtmlReport::operations_of_all);
  std::size_t marks = 0;
  for (const auto& detail : data["details"]) marks += detail["marks"].size();
  EXPECT_LE(marks, HtmlReport::marks_of_all);
  EXPECT_GT(marks, HtmlReport::marks_of_all / 4);
  EXPECT_GT(operations, HtmlReport::operations_of_all / 3);
}

// With the operations on the memory that it grants, and not those on other memory.
TEST(HtmlReport, AStorageCommandIsAnExchange) {
  Drawn drawn;
  drawn.draw(of_connections(1), [&](HtmlReport& report) {
    const Operation first = operation(0, 1);
    StorageCommand command;
    command.name = "read";
    command.outcome = StorageCommand::Outcome::failed;
    command.status_text = "LBA out of range";
    command.request = first.start;
    command.answer = Stamp{first.start.frame + 5, first.start.time_ns + 50'000};
    command.last = *command.answer;
    command.latency_ns = 50'000;
    command.block = 7;
    command.keys = {0x77};
    for (const std::uint32_t key : {0x77U, 0x78U}) {
      Operation transfer = first;
      transfer.kind = Operation::Kind::write;
      transfer.side = Side::b;
      transfer.key = key;
      report.operation(transfer, drawn.analysis);
    }
    report.command(command, drawn.analysis);
    return 0;
  });
  const nlohmann::json data = data_of(drawn.page);
  const auto& exchange = data["details"][0]["exchanges"][0];
  EXPECT_EQ(exchange["title"], "NVMe read");
  EXPECT_EQ(exchange["detail"], "at LBA 7");
  EXPECT_EQ(exchange["outcome"], "LBA out of range");
  EXPECT_FALSE(exchange["good"]);
  EXPECT_EQ(exchange["operations"].size(), 1U);
}

TEST(HtmlReport, KeepsTheSlowestAndTheFailed) {
  Drawn drawn;
  drawn.draw(of_connections(1), [&](HtmlReport& report) {
    for (std::uint64_t number = 0; number < 20'000; ++number) {
      Operation made = operation(0, number);
      if (number == 12'345) made.confirmation.time_ns += 5'000'000;
      if (number == 15'000) made.outcome = Operation::Outcome::refused;
      report.operation(made, drawn.analysis);
    }
    return 0;
  });
  const nlohmann::json data = data_of(drawn.page);
  const auto& exchanges = data["details"][0]["exchanges"];
  const auto frame_is = [](std::uint64_t frame) {
    return [frame](const nlohmann::json& one) { return one["frame"] == frame; };
  };
  const auto slow = std::find_if(exchanges.begin(), exchanges.end(), frame_is(1'012'345));
  ASSERT_NE(slow, exchanges.end());
  EXPECT_GE((*slow)["operations"].size(), 7U);  // with its neighbours
  const auto failed = std::find_if(exchanges.begin(), exchanges.end(), frame_is(1'015'000));
  ASSERT_NE(failed, exchanges.end());
  EXPECT_FALSE((*failed)["good"]);
  EXPECT_EQ(exchanges[0]["frame"], 1'000'000);  // the first
}

TEST(HtmlReport, SaysWhenFindingsWere) {
  Drawn drawn;
  drawn.draw(of_connections(1), [&](HtmlReport& report) {
    const std::int64_t first_ns = drawn.analysis.totals().first_ns;
    report.finding({.kind = "repeated",
                    .connection = 0,
                    .sentence = "Again.",
                    .stamps = {{2, first_ns + 1'500}, {5, first_ns + 9'000}}},
                   drawn.analysis);
    return 1;
  });
  const nlohmann::json finding = data_of(drawn.page)["findings"][0];
  EXPECT_EQ(finding["frames"], nlohmann::json::array({2, 5}));
  EXPECT_EQ(finding["times"], nlohmann::json::array({1'500, 9'000}));  // since the first frame
}

// Each kind of trouble, its side, time and frame. Bytes that the snap length cut are none.
TEST(HtmlReport, MarksTroubleInThePlots) {
  Drawn drawn;
  drawn.draw(of_connections(1), [&](HtmlReport& report) {
    const std::int64_t first_ns = drawn.analysis.totals().first_ns;
    const auto at = [&](std::uint64_t frame, Side side) {
      return Origin{0, side, {frame, first_ns + static_cast<std::int64_t>(frame) * 10}};
    };
    report.on_repeat(at(3, Side::a), 100);
    report.on_refusal(at(4, Side::b), {.kind = Refusal::Kind::receiver_not_ready});
    report.on_refusal(at(5, Side::b), {.kind = Refusal::Kind::sequence_error});
    report.on_refusal(at(6, Side::b), {.kind = Refusal::Kind::access_error});
    report.on_gap(at(7, Side::a), {.packets = 2});
    report.on_gap(at(8, Side::a), {.wire_bytes = 20, .cut = true});
    return 0;
  });
  EXPECT_EQ(data_of(drawn.page)["details"][0]["marks"],
            nlohmann::json::parse("[[0,0,30,3],[1,1,40,4],[2,1,50,5],[3,1,60,6],[4,0,70,7]]"));
}

TEST(HtmlReport, ShowsTheSelectedConnections) {
  Selection selection;
  selection.connection = 2;
  Drawn drawn;
  drawn.draw(
      of_connections(3), [](HtmlReport&) { return 0; }, selection);
  const nlohmann::json data = data_of(drawn.page);
  ASSERT_EQ(data["connections"].size(), 1U);
  EXPECT_EQ(data["connections"][0]["connection"], 2);
  // 101 bytes, sent once.
  EXPECT_EQ(data["details"][0]["a"], nlohmann::json::array({101}));
  EXPECT_EQ(drawn.page.find("<made>"), std::string::npos);
  EXPECT_EQ(data["trace"][0]["name"], "<made>");
}

}  // namespace
}  // namespace weft::capture::test
