// Every stored capture, damaged under a seed: cut, shuffled, duplicated, with packets that are lost
// or changed, begun in the middle, and with one direction only. What is then complete must be what
// the undamaged capture has, byte by byte.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "capture/alterations.h"
#include "capture/damage.h"
#include "capture/damage_proofs.h"
#include "capture/rpc_log.h"
#include "capture/traffic_log.h"
#include "weft/capture/analysis.hpp"
#include "weft/capture/packet_source.hpp"
#include "weft/capture/rpc_tracker.hpp"
#include "weft/capture/storage_tracker.hpp"
#include "weft/capture/traffic_findings.hpp"

namespace weft::capture::test {
namespace {

// Packets move by at most as many places in those changes that lose packets, too.
constexpr std::size_t most_moved = 16;

// Larger captures are read to this packet, except in the long run.
constexpr std::size_t enough_packets = 2'500;

MadeCapture stored(const std::string& path) {
  const bool long_run = std::getenv("WEFT_TEST_LONG") != nullptr;
  const auto source = open_capture(path);
  MadeCapture capture;
  RawPacket packet;
  while ((long_run || capture.size() < enough_packets) && source->next(packet)) {
    capture.push_back({packet.time_ns,
                       {packet.bytes.begin(), packet.bytes.end()},
                       packet.wire_bytes,
                       packet.link_type});
  }
  return numbered(std::move(capture));
}

// An operation, with the bytes of its message if all were captured.
using Fact = std::tuple<Operation::Kind, std::uint32_t, std::uint64_t, std::uint64_t>;
using Fingerprint = std::pair<Fact, std::vector<std::byte>>;
using RpcBytes = std::pair<std::uint32_t, std::vector<std::vector<std::byte>>>;
// Of a storage command one fact each: "bytes", "name" and so on, with its value. What is not known
// in a damaged capture has none.
using CommandFact = std::tuple<StorageProtocol, std::uint64_t, std::string, std::string>;

// What an analysis makes of a capture, as far as it calls it complete.
struct Results final : RpcSink, StorageSink {
  Analysis analysis;
  TrafficLog traffic;
  OperationLog operations;
  std::set<Fingerprint> messages;
  std::set<Fact> facts;
  std::set<RpcBytes> rpcs;
  std::set<CommandFact> commands;
  Reported reported{analysis.connections(), {}, {}, {}};

  // `of_all`: also of operations that failed, so that a damaged capture may lack the NAK.
  explicit Results(const MadeCapture& capture, bool of_all = false) {
    RpcTracker tracker(*this);
    StorageTracker storage(analysis.connections(), *this);
    TrafficFindings found(analysis.connections(), *this);
    for (TrafficSink* sink :
         {static_cast<TrafficSink*>(&traffic), static_cast<TrafficSink*>(&tracker),
          static_cast<TrafficSink*>(&storage), static_cast<TrafficSink*>(&found)}) {
      analysis.add_sink(*sink);
    }
    analysis.add_operations(operations);
    analysis.add_operations(found);
    feed(analysis, capture);
    tracker.finish();
    storage.finish();
    found.finish();
    for (const Operation& operation : operations.operations) add(operation, of_all);
    reported.operations = operations.operations;
  }

  void on_rpc(const Rpc& rpc) override {
    reported.add(rpc);
    RpcBytes bytes{rpc.xid, {}};
    for (const auto* message : {&rpc.call, &rpc.reply}) {
      if (!*message || !(*message)->complete()) return;
      bytes.second.emplace_back((*message)->message.bytes().begin(),
                                (*message)->message.bytes().end());
      for (const Assembled& chunk : (*message)->chunks) {
        bytes.second.emplace_back(chunk.bytes().begin(), chunk.bytes().end());
      }
    }
    rpcs.insert(std::move(bytes));
  }
  void on_command(const StorageCommand& command) override {
    using Outcome = StorageCommand::Outcome;
    if (command.outcome != Outcome::succeeded && command.outcome != Outcome::failed) return;
    const auto add = [&](const char* what, std::string value) {
      commands.emplace(command.protocol, command.id, what, std::move(value));
    };
    add("status", std::to_string(command.status));
    // The name of an NVMe command depends on its queue.
    // That of an iSER command is not known where its block of bytes was cut.
    if (command.name != "command" && command.name != "SCSI Command") {
      add("name", std::string(command.name));
    }
    if (command.block) add("block", std::to_string(*command.block));
    if (command.blocks) add("blocks", std::to_string(*command.blocks));
    if (command.bytes > 0) add("bytes", std::to_string(command.bytes));
    if (!command.file.empty()) add("file", command.file);
    if (command.offset) add("offset", std::to_string(*command.offset));
  }
  void on_finding(const Finding& finding) override {
    if (!is_supported(finding, analysis.connections()[finding.connection])) return;
    reported.findings.push_back(finding);
  }

 private:
  void add(const Operation& operation, bool of_all) {
    using Kind = Operation::Kind;
    if (operation.outcome != Operation::Outcome::complete && !of_all) return;
    const Fact fact{operation.kind, operation.key, operation.address, operation.bytes};
    facts.insert(fact);
    const auto& log = operation.kind == Kind::send    ? traffic.sends
                      : operation.kind == Kind::write ? traffic.writes
                                                      : traffic.reads;
    const auto found = log.find({operation.connection, operation.side, operation.message});
    if (found == log.end() || !found->second.whole()) return;
    messages.emplace(fact, found->second.bytes);
  }
};

struct Change {
  const char* name;
  MadeCapture (*make)(const MadeCapture& capture, Random& random);
};

MadeCapture by(const MadeCapture& capture, const Damage& damage, Random& random) {
  std::vector<bool> opening;
  for (const SentPacket& packet : sent_packets(capture)) {
    opening.push_back(packet.syn || packet.is_management());
  }
  return damaged({capture, 0, opening}, damage, random).capture;
}

// Cuts every frame, as a snap length does.
MadeCapture cut_short(const MadeCapture& capture, Random& random) {
  return cut(capture, 60 + random.below(300));
}

MadeCapture begun_in_the_middle(const MadeCapture& capture, Random& random) {
  const auto from = static_cast<std::ptrdiff_t>(random.below(capture.size()));
  return {capture.begin() + from, capture.end()};
}

const Change changes[] = {
    {"cut", cut_short},
    {"shuffled a little", [](const auto& c, auto& r) { return by(c, {.window = 8}, r); }},
    // Not so far that whole connections of a short capture change places.
    {"shuffled",
     [](const auto& c, auto& r) {
       return by(c, {.window = std::clamp<std::size_t>(c.size() / 20, 2, 100)}, r);
     }},
    {"shuffled far",
     [](const auto& c, auto& r) {
       return by(c, {.window = std::clamp<std::size_t>(c.size() / 5, 2, 512)}, r);
     }},
    {"duplicated", [](const auto& c, auto& r) { return by(c, {.captured_twice = 5}, r); }},
    {"lost before the capture",
     [](const auto& c, auto& r) { return by(c, {.before_tap = 60}, r); }},
    {"lost after it", [](const auto& c, auto& r) { return by(c, {.after_tap = 60}, r); }},
    {"lost by it", [](const auto& c, auto& r) { return by(c, {.by_tap = 60}, r); }},
    {"begun in the middle", begun_in_the_middle},
    {"begun in the middle, shuffled and lost",
     [](const auto& c, auto& r) {
       return by(begun_in_the_middle(c, r), {.window = 8, .by_tap = 100}, r);
     }},
    {"everything",
     [](const auto& c, auto& r) {
       const Damage damage{
           .window = 16, .before_tap = 200, .after_tap = 200, .by_tap = 200, .captured_twice = 50};
       return cut(by(c, damage, r), 200 + r.below(1'500));
     }},
};

std::string text_of(const Fact& fact) {
  const auto& [kind, key, address, bytes] = fact;
  return fmt::format("{} of {} bytes, key {:#x}, address {:#x}", to_string(kind), bytes, key,
                     address);
}
std::string text_of(const Fingerprint& one) {
  return text_of(one.first);
}
std::string text_of(const RpcBytes& one) {
  return fmt::format("XID {:#x}", one.first);
}
std::string text_of(const CommandFact& one) {
  return fmt::format("{} {:#x}: {} {}", to_string(std::get<0>(one)), std::get<1>(one),
                     std::get<2>(one), std::get<3>(one));
}

// A Read whose request the capture lacks may be asked for again from the middle on: the capture has
// a whole Read of the rest.
bool is_rest_of(const Fact& rest, const Operation& whole) {
  const auto& [kind, key, address, bytes] = rest;
  return kind == Operation::Kind::read && whole.kind == kind && key == whole.key &&
         address > whole.address && address + bytes == whole.address + whole.requested_bytes;
}
bool is_rest_of(const Fingerprint& rest, const Operation& whole, const Results& all) {
  if (!is_rest_of(rest.first, whole)) return false;
  const Fact fact{whole.kind, whole.key, whole.address, whole.requested_bytes};
  return std::ranges::any_of(all.messages, [&](const Fingerprint& one) {
    return one.first == fact &&
           std::ranges::equal(rest.second, std::span(one.second).last(rest.second.size()));
  });
}
bool is_rest_of(const Fact& rest, const Operation& whole, const Results& /*all*/) {
  return is_rest_of(rest, whole);
}
template <typename Other>
bool is_rest_of(const Other& /*one*/, const Operation& /*whole*/, const Results& /*all*/) {
  return false;
}

template <typename Set>
void expect_subset(const Set& of_damaged, const Set& of_all, const Results& all,
                   const DamageProofs& proofs, const char* what) {
  std::size_t wrong = 0;
  std::string first;
  for (const auto& one : of_damaged) {
    if (of_all.contains(one)) continue;
    const bool rest = std::ranges::any_of(all.reported.operations, [&](const Operation& whole) {
      return is_rest_of(one, whole, all) && proofs.lacks_request(whole);
    });
    if (rest) continue;
    if (wrong++ == 0) first = text_of(one);
  }
  EXPECT_EQ(wrong, 0U) << what << " of " << of_damaged.size() << ", such as " << first;
}

void expect_nothing_wrong(const Results& seen, const Results& all, const DamageProofs& proofs) {
  expect_subset(seen.facts, all.facts, all, proofs, "operations");
  expect_subset(seen.messages, all.messages, all, proofs, "messages");
  expect_subset(seen.rpcs, all.rpcs, all, proofs, "RPCs");
  expect_subset(seen.commands, all.commands, all, proofs, "storage commands");
  for (const Finding& finding : seen.reported.findings) {
    EXPECT_TRUE(proofs.explain(finding))
        << finding.kind << ": " << finding.sentence << " Frame "
        << (finding.stamps.empty() ? 0 : finding.stamps.front().frame);
  }
}

template <typename Set>
void expect_all(const Set& of_damaged, const Set& of_all, const char* what) {
  std::size_t lacking = 0;
  std::string first;
  for (const auto& one : of_all) {
    if (of_damaged.contains(one)) continue;
    if (lacking++ == 0) first = text_of(one);
  }
  EXPECT_EQ(lacking, 0U) << what << " of " << of_all.size() << " are lacking, such as " << first;
}

// Nothing is missing, so all that is complete in the original must be complete.
void expect_everything(const Results& seen, const Results& complete) {
  expect_all(seen.facts, complete.facts, "operations");
  expect_all(seen.messages, complete.messages, "messages");
  expect_all(seen.rpcs, complete.rpcs, "RPCs");
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_TEST_DATA)) {
    all.push_back(entry.path().filename().string());
  }
  std::ranges::sort(all);
  return all;
}

class StoredDamage : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(, StoredDamage, testing::ValuesIn(names()), [](const auto& test_case) {
  return test_case.param.substr(0, test_case.param.find('.'));
});

TEST_P(StoredDamage, CompleteMeansByteExact) {
  const bool long_run = std::getenv("WEFT_TEST_LONG") != nullptr;
  const MadeCapture capture = stored(std::string(WEFT_TEST_DATA) + "/" + GetParam());
  const Results all(capture, true);
  const Results complete(capture);
  const std::vector<SentPacket> sent = sent_packets(capture);
  for (const Change& change : changes) {
    std::vector<std::uint64_t> seeds = weft::test::seeds(long_run ? 100 : 10);
    // This one has a copy of a request before older requests of a connection without a handshake.
    if (seeds.size() > 1) seeds.push_back(223);
    for (const std::uint64_t seed : seeds) {
      SCOPED_TRACE(testing::Message() << weft::test::seed_trace(seed) << ", " << change.name);
      Random random(seed);
      const MadeCapture altered = change.make(capture, random);
      const Results seen(altered);
      const Alterations alterations(capture, sent, altered);
      expect_nothing_wrong(seen, all, {all.reported, seen.reported, alterations, most_moved});
      if (alterations.lacks_nothing()) expect_everything(seen, complete);
    }
  }
}

}  // namespace
}  // namespace weft::capture::test
