// What filter expressions select, and how mistakes in them are reported.
#include "capture/filter/filter.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::capture::test {
namespace {

HostAddress ipv4(int a, int b, int c, int d) {
  const std::byte bytes[] = {std::byte(a), std::byte(b), std::byte(c), std::byte(d)};
  return HostAddress::ipv4(bytes);
}

// An RPC, an operation and a finding of one connection between 10.0.0.7 and 10.0.1.8.
class FilterTest : public ::testing::Test {
 protected:
  FilterTest() {
    connection_.id = 2;
    connection_.a = {ipv4(10, 0, 0, 7), 700};
    connection_.b = {ipv4(10, 0, 1, 8), 20049};
    connection_.end = Connection::End::half_open;
    connection_.first = {5, 1'000};
    connection_.frames = 77;
    operation_.kind = Operation::Kind::write;
    operation_.side = Side::b;
    operation_.bytes = 65'536;
    operation_.key = 0xBEEF;
    operation_.address = 0xFFFF'FFFF'FFFF'FFF0;
    operation_.start = {6, 2'001'000};
    operation_.end = {7, 2'500'000};
    operation_.confirmed = true;
    operation_.confirmation = {9, 5'001'000};
    rpc_.xid = 0x1234;
    rpc_.call.emplace().first = {10, 11'000'000};
    rpc_.reply.emplace().first = {12, 26'000'000};
    rpc_.call->lists.reads.push_back({.position = 0, .target = {.handle = 0x77, .length = 8}});
    rpc_.latency_ns = 15'000'000;
    rpc_.has_header = true;
    rpc_.program = nfs_program;
    rpc_.version = 4;
    rpc_.procedure = 1;
    rpc_.nfs.emplace().version = 4;
    rpc_.nfs->operations.resize(2);
    rpc_.nfs->operations[0].name = "PUTFH";
    rpc_.nfs->operations[1].name = "WRITE";
    rpc_.nfs->operations[1].entry = "Results.csv";
    command_.protocol = StorageProtocol::smb_direct;
    command_.requester = Side::b;
    command_.name = "SMB2 READ";
    command_.outcome = StorageCommand::Outcome::failed;
    command_.status_text = "STATUS_ACCESS_DENIED";
    command_.request = Stamp{20, 21'000'000};
    command_.answer = Stamp{22, 24'000'000};
    command_.latency_ns = 3'000'000;
    command_.transfer_ns = 1'000'000;
    command_.bytes = 4096;
    command_.offset = 8192;
    command_.file = "Results.csv";
    command_.keys = {0x88, 0x99};
    finding_.kind = "rpc-unanswered";
    finding_.sentence = "One call had no reply.";
    finding_.stamps = {{10, 11'000'000}, {90, 95'000'000}};
    finding_.xid = 0x1234;
  }

  [[nodiscard]] bool connection(const char* text) const { return takes(text, {&connection_}); }
  [[nodiscard]] bool operation(const char* text) const {
    return takes(text, {.connection = &connection_, .operation = &operation_});
  }
  [[nodiscard]] bool message(const char* text) const {
    return takes(text, {.connection = &connection_, .operation = &operation_, .message = true});
  }
  [[nodiscard]] bool rpc(const char* text) const {
    return takes(text, {.connection = &connection_, .rpc = &rpc_});
  }
  [[nodiscard]] bool command(const char* text) const {
    return takes(text, {.connection = &connection_, .command = &command_});
  }
  [[nodiscard]] bool finding(const char* text) const {
    return takes(text, {.connection = &connection_, .finding = &finding_});
  }

  Connection connection_;
  Operation operation_;
  Rpc rpc_;
  StorageCommand command_;
  Finding finding_;

 private:
  [[nodiscard]] static bool takes(const char* text, FilterRecord record) {
    record.origin_ns = 1'000;
    return Filter::parse(text).takes(record);
  }
};

TEST_F(FilterTest, TheExampleOfTheHelp) {
  EXPECT_TRUE(rpc(R"(rpc.latency > 10ms && rpc.procedure == "WRITE" && peer == 10.0.0.7)"));
  EXPECT_FALSE(rpc(R"(rpc.latency > 16ms && rpc.procedure == "WRITE" && peer == 10.0.0.7)"));
  EXPECT_FALSE(rpc(R"(rpc.latency > 10ms && rpc.procedure == "READ" && peer == 10.0.0.7)"));
  EXPECT_FALSE(rpc(R"(rpc.latency > 10ms && rpc.procedure == "WRITE" && peer == 10.0.0.9)"));
}

TEST_F(FilterTest, AFieldThatTheRecordLacksFitsNothing) {
  EXPECT_FALSE(operation("rpc.latency > 0ns"));
  EXPECT_FALSE(operation("rpc.latency != 1ns"));
  EXPECT_FALSE(operation("rpc.latency"));
  EXPECT_TRUE(operation("!(rpc.latency > 0ns)"));
  EXPECT_TRUE(rpc("rpc.latency and not operation.kind"));
  EXPECT_FALSE(finding("rpc.latency or connection.end"));
}

TEST_F(FilterTest, ThePrecedenceIsNotAndOr) {
  EXPECT_TRUE(connection("transport == iwarp || port == 1 && port == 2"));
  EXPECT_FALSE(connection("(transport == iwarp || port == 1) && port == 2"));
  EXPECT_TRUE(connection("!port == 1 && port == 700"));
  EXPECT_FALSE(connection("! (port == 700 || port == 1)"));
  EXPECT_TRUE(connection("port == 1 || port == 2 || port == 700"));
  EXPECT_FALSE(connection("port == 700 && port == 20049 && port == 3 || port == 4"));
  EXPECT_TRUE(connection("not not (((port == 700)))"));
}

TEST_F(FilterTest, NumbersHaveUnitsAnd64Bits) {
  EXPECT_TRUE(operation("operation.bytes == 64KiB"));
  EXPECT_TRUE(operation("operation.bytes >= 65.536kB and operation.bytes <= 0x10000"));
  EXPECT_FALSE(operation("operation.bytes < 64KiB or operation.bytes > 65536"));
  EXPECT_TRUE(operation("operation.address == 0xfffffffffffffff0"));
  EXPECT_FALSE(operation("operation.address == 0xfffffffffffffff1"));
  EXPECT_TRUE(rpc("rpc.xid == 0x1234 && rpc.key == 119 && rpc.version in {3, 4}"));
}

TEST_F(FilterTest, TimesNeedUnits) {
  EXPECT_TRUE(operation("operation.latency == 3ms && operation.latency == 3000us"));
  EXPECT_TRUE(operation("time >= 2ms && time < 0.0021s && time == 2000µs"));
  EXPECT_TRUE(operation("operation.latency > 0"));
  EXPECT_THROW((void)Filter::parse("operation.latency > 3"), FilterError);
}

TEST_F(FilterTest, AddressesHavePrefixesAndSides) {
  EXPECT_TRUE(connection("peer == 10.0.0.0/23 && peer == 10.0.1.8/32 && peer == ::ffff:10.0.0.7"));
  EXPECT_FALSE(connection("peer == 10.0.2.0/23"));
  EXPECT_FALSE(connection("peer == \"LID 7\""));
  // Neither of the two may be equal.
  EXPECT_FALSE(connection("peer != 10.0.0.7"));
  EXPECT_TRUE(connection("peer != 10.0.0.9"));
  EXPECT_TRUE(operation("requester == 10.0.1.8 && responder == 10.0.0.7"));
  EXPECT_TRUE(rpc("requester == 10.0.0.7"));
  EXPECT_FALSE(connection("requester"));
  connection_.a.address = HostAddress::lid(7);
  EXPECT_TRUE(connection("peer == \"LID 7\""));
  EXPECT_FALSE(connection("peer == 7::"));
}

TEST_F(FilterTest, TextsIgnoreCaseAndMayBeParts) {
  EXPECT_TRUE(rpc("rpc.procedure == write && rpc.procedure == Compound && rpc.program == nfs"));
  EXPECT_TRUE(rpc("rpc.program == 100003 && nfs.name contains 'results'"));
  EXPECT_FALSE(rpc("nfs.name == results"));
  EXPECT_TRUE(finding("finding.kind contains rpc && finding.sentence contains 'no reply'"));
  EXPECT_TRUE(finding("rpc.xid == 0x1234"));
}

TEST_F(FilterTest, WordsAreCheckedAndLevelsAscend) {
  EXPECT_TRUE(connection("connection.end in {closed, half-open} && connection.frames == 77"));
  EXPECT_TRUE(operation("operation.kind in {read, WRITE} && operation.outcome == complete"));
  EXPECT_TRUE(finding("finding.severity >= warning && finding.severity == error"));
  finding_.severity = Severity::note;
  EXPECT_FALSE(finding("finding.severity >= warning"));
  EXPECT_TRUE(finding("finding.severity < warning"));
}

TEST_F(FilterTest, AFindingHasAllOfItsFrames) {
  EXPECT_TRUE(finding("frame == 90 && frame == 10"));
  EXPECT_FALSE(finding("frame == 11"));
  EXPECT_TRUE(connection("frame == 5 && connection == 3"));
}

TEST_F(FilterTest, TheEndOfAMessageForExtractionIsNotKnown) {
  EXPECT_TRUE(message("operation.kind == write && operation.bytes == 65536"));
  EXPECT_FALSE(message("operation.latency >= 0"));
  EXPECT_FALSE(message("operation.outcome"));
}

// Each case is an expression, the position and length of its mistake, and a part of the sentence.
struct Mistake {
  const char* text;
  std::size_t position;
  std::size_t length;
  const char* sentence;
};

TEST_F(FilterTest, StorageCommandsHaveTheirFields) {
  EXPECT_TRUE(command("command.protocol == smb && command.name contains read"));
  EXPECT_TRUE(command("command.outcome == failed && command.status == status_access_denied"));
  EXPECT_TRUE(command("command.latency > 2ms && command.latency < 4ms"));
  EXPECT_TRUE(command("command.transfer == 1ms && command.bytes == 4KiB"));
  EXPECT_TRUE(command("command.file == results.csv && command.offset == 8192"));
  EXPECT_TRUE(command("command.key == 0x99 && command.id == 0"));
  EXPECT_TRUE(command("requester == 10.0.1.8 && responder == 10.0.0.7 && frame == 20"));
  EXPECT_FALSE(command("command.block"));
  EXPECT_FALSE(command("command.queue || command.unit || command.blocks"));
  EXPECT_FALSE(command("operation.latency || rpc.latency || connection.end"));
  EXPECT_FALSE(rpc("command.latency"));
  EXPECT_FALSE(operation("command.protocol"));
}

TEST(FilterErrors, PointAtThePlace) {
  const Mistake mistakes[] = {
      {"rpc.latancy > 10ms", 0, 11, "did you mean rpc.latency?"},
      {"completely.else == 1", 0, 15, "weft help filters"},
      {"rpc.latency > 10", 14, 2, "has no unit"},
      {"rpc.latency > fast", 14, 4, "is not a time"},
      {"rpc.latency >", 13, 1, "expected a value, and the expression ends"},
      {"rpc.xid = 5", 8, 1, "equality is =="},
      {"rpc.xid == -5", 11, 2, "is not a number"},
      {"rpc.xid == 5 rpc.xid == 6", 13, 7, "expected && or ||"},
      {"operation.kind == reed", 18, 4, "none of send, write, read"},
      {"operation.kind > read", 15, 1, "does not apply to operation.kind"},
      {"rpc.xid contains 5", 8, 8, "does not apply to rpc.xid"},
      {"peer == 10.0.0.300", 8, 10, "is not an address"},
      {"peer == 10.0.0.0/33", 8, 11, "is not an address"},
      {"(rpc.xid == 5", 13, 1, "expected )"},
      {"rpc.xid in {5, 6", 16, 1, "expected , or }"},
      {"rpc.xid in 5", 11, 1, "expected {"},
      {"rpc.status == \"OK", 14, 3, "no closing quote"},
      {"&& rpc.xid", 0, 2, "expected a field"},
      {"rpc.xid & rpc.xid", 8, 1, "expected && or ||"},
      {"", 0, 1, "expected a field"},
  };
  for (const Mistake& mistake : mistakes) {
    try {
      (void)Filter::parse(mistake.text);
      ADD_FAILURE() << mistake.text;
    } catch (const FilterError& error) {
      EXPECT_EQ(error.position(), mistake.position) << mistake.text;
      EXPECT_EQ(error.length(), mistake.length) << mistake.text;
      EXPECT_NE(std::string(error.what()).find(mistake.sentence), std::string::npos)
          << mistake.text << ": " << error.what();
    }
  }
}

TEST(FilterErrors, TheCaretCountsCharacters) {
  const std::string text = "time > 5µs &&\toperation.kind == reed";
  try {
    (void)Filter::parse(text);
    FAIL();
  } catch (const FilterError& error) {
    EXPECT_EQ(caret_text(text, error),
              "time > 5µs && operation.kind == reed\n"
              "                                ^~~~");
  }
}

TEST(FilterErrors, DeepNestingIsRefusedAndLongChainsAreNot) {
  const std::string deep = std::string(100'000, '(') + "rpc.xid" + std::string(100'000, ')');
  EXPECT_THROW((void)Filter::parse(deep), FilterError);
  std::string chain = "port == 1";
  for (int i = 0; i < 100'000; ++i) chain += " || port == 2";
  const Connection connection;
  EXPECT_FALSE(Filter::parse(chain).takes({.connection = &connection}));
}

}  // namespace
}  // namespace weft::capture::test
