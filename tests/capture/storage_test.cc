// Commands of storage protocols: recognised by what their messages must look like, joined with
// their answers, and counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "capture/made_roce.h"
#include "weft/capture/packet_source.hpp"
#include "weft/capture/storage_tracker.hpp"

namespace weft::capture::test {
namespace {

using Outcome = StorageCommand::Outcome;

Content le(std::initializer_list<std::pair<std::size_t, std::uint64_t>> fields) {
  Content out;
  for (const auto& [size, value] : fields) {
    for (std::size_t i = 0; i < size; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  return out;
}

struct CommandLog final : StorageSink {
  std::vector<StorageCommand> commands;

  void on_command(const StorageCommand& command) override { commands.push_back(command); }
};

// The capture through a whole analysis.
struct Seen {
  Analysis analysis;
  CommandLog log;
  StorageTracker storage;

  explicit Seen(const MadeCapture& capture, const StorageLimits& limits = {})
      : storage(analysis.connections(), log, limits) {
    analysis.add_sink(storage);
    feed(analysis, capture);
    storage.finish();
  }
  [[nodiscard]] const std::vector<StorageCommand>& commands() const { return log.commands; }
};

// --- SMB Direct ----------------------------------------------------------------------------------

Content negotiate_request() {
  return le({{2, 0x0100}, {2, 0x0100}, {2, 0}, {2, 255}, {4, 1364}, {4, 8192}, {4, 1'048'576}});
}

Content negotiate_response() {
  return le({{2, 0x0100},
             {2, 0x0100},
             {2, 0x0100},
             {2, 0},
             {2, 255},
             {2, 255},
             {4, 0},
             {4, 8'388'608},
             {4, 1364},
             {4, 8192},
             {4, 1'048'576}});
}

Content transfer(std::uint16_t command) {
  Content message = le({{2, 255},
                        {2, 10},
                        {2, 0},
                        {2, 0},
                        {4, 0},
                        {4, 24},
                        {4, 80},
                        {4, 0},
                        {4, 0x424D53FE},
                        {2, 64},
                        {2, 0},
                        {4, 0},
                        {2, command}});
  message.resize(24 + 80);
  return message;
}

Content empty_transfer() {
  return le({{2, 255}, {2, 10}, {2, 0}, {2, 0}, {4, 0}, {4, 0}, {4, 0}});
}

TEST(SmbDirect, MessagesAreCountedByType) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  talk.connect();
  talk.send(Side::a, negotiate_request());
  talk.send(Side::b, negotiate_response());
  talk.send(Side::a, transfer(8));
  talk.send(Side::b, transfer(8));
  talk.send(Side::a, transfer(5));
  talk.send(Side::a, empty_transfer());
  const Seen seen(capture);
  const StorageTraffic* found = seen.storage.of(0);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->protocol, StorageProtocol::smb_direct);
  EXPECT_EQ(found->messages, (MessageCounts{{"negotiate request", 1},
                                            {"negotiate response", 1},
                                            {"transfer", 3},
                                            {"transfer without data", 1},
                                            {"SMB2 READ", 2},
                                            {"SMB2 CREATE", 1}}));
}

TEST(SmbDirect, IsRecognisedInMidStream) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  talk.send(Side::a, empty_transfer());
  talk.send(Side::b, transfer(9));
  const Seen seen(capture);
  ASSERT_NE(seen.storage.of(0), nullptr);
  EXPECT_EQ(seen.storage.of(0)->messages, (MessageCounts{{"SMB2 WRITE", 1}, {"transfer", 1}}));
}

// An SMB 2 header (MS-SMB2 §2.2.1) and a body.
struct Smb2 {
  std::uint16_t command = 0;
  std::uint64_t id = 0;
  std::uint32_t status = 0;
  bool response = false;
  Content body{};
};

constexpr std::uint32_t pending = 0x103;
constexpr std::uint32_t access_denied = 0xC0000022;

Content chain(const std::vector<Smb2>& messages) {
  Content out;
  for (const Smb2& one : messages) {
    Content made = le({{4, 0x424D53FE},
                       {2, 64},
                       {2, 1},
                       {4, one.status},
                       {2, one.command},
                       {2, 1},
                       {4, one.response ? 1U : 0U},
                       {4, 0},
                       {8, one.id}});
    made.resize(64);
    made.insert(made.end(), one.body.begin(), one.body.end());
    if (&one != &messages.back()) {
      made.resize((made.size() + 7) / 8 * 8);
      store_le(made.data() + 20, static_cast<std::uint32_t>(made.size()));
    }
    if (&one != &messages.front()) made[16] |= std::byte{4};  // related to the one before
    out.insert(out.end(), made.begin(), made.end());
  }
  return out;
}

// The transfers of a message, with pieces of `piece_bytes`.
std::vector<Content> transfers(const Content& message, std::size_t piece_bytes = 1'000) {
  std::vector<Content> out;
  for (std::size_t at = 0; at < message.size(); at += piece_bytes) {
    const std::size_t size = std::min(piece_bytes, message.size() - at);
    Content made = le({{2, 255},
                       {2, 10},
                       {2, 0},
                       {2, 0},
                       {4, message.size() - at - size},
                       {4, 24},
                       {4, size},
                       {4, 0}});
    made.insert(made.end(), message.begin() + static_cast<std::ptrdiff_t>(at),
                message.begin() + static_cast<std::ptrdiff_t>(at + size));
    out.push_back(made);
  }
  return out;
}

void say(RoceTalk& talk, Side side, const std::vector<Smb2>& messages,
         std::size_t piece_bytes = 1'000) {
  for (const Content& one : transfers(chain(messages), piece_bytes)) talk.send(side, one);
}

constexpr std::uint64_t file_id = 0x77;
constexpr std::uint64_t same_file = ~std::uint64_t{0};  // the file that the chain has opened

Content create_body(std::string_view name) {
  Content out(56);
  store_le(out.data() + 44, std::uint16_t{64 + 56});
  store_le(out.data() + 46, static_cast<std::uint16_t>(2 * name.size()));
  for (const char one : name) {
    out.push_back(static_cast<std::byte>(one));
    out.push_back({});
  }
  return out;
}

Content created_body() {
  Content out(88);
  store_le(out.data() + 64, file_id);
  store_le(out.data() + 72, file_id);
  return out;
}

// READ with a descriptor of memory: length, offset in the file, and the key.
Content read_body(std::uint32_t bytes, std::uint64_t offset, std::uint32_t key,
                  std::uint64_t file = file_id) {
  Content out = le({{2, 49}, {1, 0}, {1, 0}, {4, bytes}, {8, offset}, {8, file}, {8, file}});
  const Content rest = le({{4, 0}, {4, 1}, {4, 0}, {2, 64 + 48}, {2, 16}});
  out.insert(out.end(), rest.begin(), rest.end());
  const Content descriptor = le({{8, 0x1000}, {4, key}, {4, bytes}});
  out.insert(out.end(), descriptor.begin(), descriptor.end());
  return out;
}

TEST(SmbDirect, CommandsAreJoinedWithTheirAnswersAndTheirData) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  talk.connect();
  talk.send(Side::a, negotiate_request());
  talk.send(Side::b, negotiate_response());
  say(talk, Side::a, {{.command = 5, .id = 7, .body = create_body("a\\b.txt")}});
  say(talk, Side::b, {{.command = 5, .id = 7, .response = true, .body = created_body()}});
  say(talk, Side::a, {{.command = 8, .id = 8, .body = read_body(4096, 8192, 0xBEEF)}});
  talk.write(Side::b, 0xBEEF, 0x1000, 4096);
  say(talk, Side::b, {{.command = 8, .id = 8, .response = true}});
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), 2U);
  const StorageCommand& create = seen.commands()[0];
  EXPECT_EQ(describe(create), "SMB2 CREATE");
  EXPECT_EQ(detail_text(create), "\"a\\\\b.txt\"");
  EXPECT_EQ(create.outcome, Outcome::succeeded);
  const StorageCommand& read = seen.commands()[1];
  EXPECT_EQ(read.name, "SMB2 READ");
  EXPECT_EQ(read.file, "a\\b.txt");
  EXPECT_EQ(read.id, 8U);
  EXPECT_EQ(read.bytes, 4096U);
  EXPECT_EQ(read.offset, 8192U);
  EXPECT_EQ(read.keys, std::vector<std::uint32_t>{0xBEEF});
  ASSERT_TRUE(read.request && read.answer);
  EXPECT_EQ(read.latency_ns, read.answer->time_ns - read.request->time_ns);
  EXPECT_GT(read.transfer_ns, 0);
  EXPECT_LT(read.transfer_ns, read.latency_ns);
  EXPECT_EQ(outcome_text(read), "OK");
}

TEST(SmbDirect, EachCommandOfAChainIsOne) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  say(talk, Side::a,
      {{.command = 5, .id = 1, .body = create_body("folder")},
       {.command = 8, .id = 2, .body = read_body(10, 0, 1, same_file)}});
  say(talk, Side::b,
      {{.command = 5, .id = 1, .response = true, .body = created_body()},
       {.command = 8, .id = 2, .status = access_denied, .response = true}});
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), 2U);
  EXPECT_EQ(outcome_text(seen.commands()[0]), "OK");
  EXPECT_EQ(seen.commands()[1].file, "folder");
  EXPECT_EQ(seen.commands()[1].outcome, Outcome::failed);
  EXPECT_EQ(outcome_text(seen.commands()[1]), "STATUS_ACCESS_DENIED");
}

TEST(SmbDirect, AnInterimAnswerIsNotTheEnd) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  say(talk, Side::a, {{.command = 15, .id = 5}});
  say(talk, Side::b, {{.command = 15, .id = 5, .status = pending, .response = true}});
  say(talk, Side::a, {{.command = 13, .id = 6}});
  say(talk, Side::b, {{.command = 13, .id = 6, .response = true}});
  say(talk, Side::b, {{.command = 15, .id = 5, .response = true}});
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), 2U);
  EXPECT_EQ(seen.commands()[0].name, "SMB2 ECHO");
  EXPECT_FALSE(seen.commands()[0].interim);
  ASSERT_TRUE(seen.commands()[1].interim && seen.commands()[1].answer);
  EXPECT_LT(seen.commands()[1].interim->frame, seen.commands()[1].answer->frame);
}

TEST(SmbDirect, AMessageInSeveralTransfersIsOne) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  // The name lies in the second transfer.
  say(talk, Side::a, {{.command = 5, .id = 1, .body = create_body("far.txt")}}, 112);
  say(talk, Side::b, {{.command = 5, .id = 1, .response = true, .body = created_body()}}, 50);
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), 1U);
  EXPECT_EQ(seen.commands()[0].file, "far.txt");
  EXPECT_EQ(seen.commands()[0].outcome, Outcome::succeeded);
  EXPECT_EQ(seen.storage.of(0)->messages, (MessageCounts{{"SMB2 CREATE", 2}, {"transfer", 6}}));
}

TEST(SmbDirect, AMissingTransferEndsItsMessageOnly) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  const auto pieces =
      transfers(chain({{.command = 5, .id = 1, .body = create_body("far.txt")}}), 60);
  ASSERT_EQ(pieces.size(), 3U);
  say(talk, Side::a, {{.command = 13, .id = 9}});
  talk.send(Side::a, pieces[0]);
  talk.send(Side::a, pieces[2]);
  say(talk, Side::a, {{.command = 13, .id = 2}});
  say(talk, Side::b, {{.command = 13, .id = 2, .response = true}});
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), 2U);
  EXPECT_EQ(seen.commands()[0].id, 2U);
  EXPECT_EQ(seen.commands()[0].outcome, Outcome::succeeded);
  EXPECT_EQ(seen.commands()[1].id, 9U);
  EXPECT_EQ(seen.commands()[1].outcome, Outcome::unanswered);
}

// Only the names and keys are given up: the commands themselves are all there.
TEST(SmbDirect, NamesAndKeysAreBounded) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  say(talk, Side::a, {{.command = 5, .id = 1, .body = create_body("first")}});
  say(talk, Side::b, {{.command = 5, .id = 1, .response = true, .body = created_body()}});
  Content other = created_body();
  store_le(other.data() + 64, std::uint64_t{1});
  say(talk, Side::a, {{.command = 5, .id = 2, .body = create_body("second")}});
  say(talk, Side::b, {{.command = 5, .id = 2, .response = true, .body = other}});
  say(talk, Side::a, {{.command = 8, .id = 3, .body = read_body(10, 0, 1)}});
  say(talk, Side::a, {{.command = 8, .id = 4, .body = read_body(10, 0, 1, 1)}});
  const Seen all(capture);
  ASSERT_EQ(all.commands().size(), 4U);
  EXPECT_EQ(all.commands()[2].file, "first");
  for (const StorageLimits& limits :
       {StorageLimits{.keys = 0, .files = 1}, StorageLimits{.keys = 0, .files_in_all = 1}}) {
    const Seen few(capture, limits);
    ASSERT_EQ(few.commands().size(), 4U);
    EXPECT_EQ(few.commands()[2].file, "");
    EXPECT_TRUE(few.commands()[2].keys.empty());
  }
}

TEST(SmbDirect, EncryptedMessagesOnlyCount) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  Content message = chain({{.command = 8, .id = 1, .body = Content(64)}});
  message[0] = std::byte{0xFD};
  for (const Content& one : transfers(message)) talk.send(Side::a, one);
  const Seen seen(capture);
  EXPECT_TRUE(seen.commands().empty());
  ASSERT_NE(seen.storage.of(0), nullptr);
  EXPECT_EQ(seen.storage.of(0)->messages, (MessageCounts{{"SMB3 encrypted", 1}, {"transfer", 1}}));
}

// --- NVMe over RDMA ------------------------------------------------------------------------------

constexpr std::uint8_t keyed = 0x40;

Content command(std::uint8_t opcode, std::uint16_t number, std::uint8_t fabrics_type = 0,
                std::uint16_t queue = 0) {
  Content out(64);
  out[0] = std::byte{opcode};
  out[1] = std::byte{0x40};
  store_le(out.data() + 2, number);
  out[4] = std::byte{fabrics_type};
  out[39] = std::byte{keyed};
  store_le(out.data() + 42, queue);
  return out;
}

Content completion(std::uint16_t number, std::uint16_t status = 0) {
  Content out(16);
  store_le(out.data() + 12, number);
  store_le(out.data() + 14, static_cast<std::uint16_t>(status << 1));
  return out;
}

void ask(RoceTalk& talk, const Content& asked, std::uint16_t status = 0) {
  talk.send(Side::a, asked);
  talk.send(Side::b, completion(load_le<std::uint16_t>(asked.data() + 2), status));
}

TEST(Nvme, AdminAndInputOutputQueuesHaveTheirCommands) {
  MadeCapture capture;
  RoceTalk admin(capture, {.mtu_bytes = 1024});
  admin.connect();
  ask(admin, command(0x7F, 1, 0x01, 0));
  ask(admin, command(0x7F, 2, 0x04));
  ask(admin, command(0x06, 3));
  ask(admin, command(0x02, 4), 0x0B);
  RoceTalk io(capture, {.mtu_bytes = 1024, .qp_a = 0x12, .qp_b = 0x12});
  io.connect();
  ask(io, command(0x7F, 1, 0x01, 3));
  ask(io, command(0x02, 2));
  ask(io, command(0x01, 3));
  ask(io, command(0x01, 4));
  const Seen seen(capture);
  ASSERT_NE(seen.storage.of(0), nullptr);
  EXPECT_EQ(seen.storage.of(0)->protocol, StorageProtocol::nvme);
  EXPECT_EQ(seen.storage.of(0)->messages, (MessageCounts{{"connect", 1},
                                                         {"property get", 1},
                                                         {"identify", 1},
                                                         {"get log page", 1},
                                                         {"completion", 4},
                                                         {"completion with an error", 1}}));
  ASSERT_NE(seen.storage.of(1), nullptr);
  EXPECT_EQ(seen.storage.of(1)->messages,
            (MessageCounts{{"connect", 1}, {"read", 1}, {"write", 2}, {"completion", 4}}));
}

TEST(Nvme, IsRecognisedInMidStreamByCommandsAndTheirCompletions) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  for (std::uint16_t number = 10; number < 16; ++number) ask(talk, command(2, number));
  const Seen seen(capture);
  ASSERT_NE(seen.storage.of(0), nullptr);
  // From the fourth completion on; whether it reads or asks for a log page cannot be known.
  EXPECT_EQ(seen.storage.of(0)->messages, (MessageCounts{{"command", 2}, {"completion", 3}}));
}

// A command of an I/O queue, with a key for its data.
Content io_command(std::uint8_t opcode, std::uint16_t number, std::uint64_t block,
                   std::uint16_t blocks, std::uint32_t bytes, std::uint32_t key) {
  Content out = command(opcode, number);
  store_le(out.data() + 4, std::uint32_t{3});  // the namespace
  store_le(out.data() + 32, bytes);            // three bytes, and then the key
  store_le(out.data() + 35, key);
  store_le(out.data() + 40, block);
  store_le(out.data() + 48, static_cast<std::uint16_t>(blocks - 1));
  return out;
}

void connect_queue(RoceTalk& talk, std::uint16_t queue) {
  talk.connect();
  ask(talk, command(0x7F, 1, 0x01, queue));
}

TEST(Nvme, ACommandHasItsBlocksItsDataAndItsStatus) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  connect_queue(talk, 2);
  talk.send(Side::a, io_command(2, 5, 0x1'0000'0000, 8, 4096, 0xABCDEF01));
  talk.send(Side::a, io_command(1, 6, 70, 1, 512, 0x55));
  talk.write(Side::b, 0xABCDEF01, 0x1000, 4096);
  talk.read(Side::b, 0x55, 0x9000, 512);
  talk.send(Side::b, completion(6, 0x0080));
  talk.send(Side::b, completion(5));
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), 3U);
  EXPECT_EQ(seen.commands()[0].name, "connect");
  const StorageCommand& write = seen.commands()[1];
  EXPECT_EQ(describe(write), "NVMe write");
  EXPECT_EQ(detail_text(write), "1 block at LBA 70, namespace 3");
  EXPECT_EQ(write.outcome, Outcome::failed);
  EXPECT_EQ(outcome_text(write), "LBA out of range");
  EXPECT_GT(write.transfer_ns, 0);
  const StorageCommand& read = seen.commands()[2];
  EXPECT_EQ(read.requester, Side::a);
  EXPECT_EQ(read.queue, 2U);
  EXPECT_EQ(read.unit, 3U);
  EXPECT_EQ(read.block, 0x1'0000'0000U);
  EXPECT_EQ(read.blocks, 8U);
  EXPECT_EQ(read.bytes, 4096U);
  EXPECT_EQ(read.keys, std::vector<std::uint32_t>{0xABCDEF01});
  EXPECT_EQ(read.outcome, Outcome::succeeded);
  EXPECT_GT(read.transfer_ns, 0);
  EXPECT_LT(read.transfer_ns, read.latency_ns);
}

TEST(Nvme, AStatusIsNamedByItsTypeAndItsCommand) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  talk.connect();
  ask(talk, command(0x7F, 1, 0x01, 1), 0x182);
  ask(talk, io_command(1, 2, 0, 1, 512, 1), 0x182);
  ask(talk, io_command(2, 3, 0, 1, 512, 1), 0x281);
  ask(talk, io_command(2, 4, 0, 1, 512, 1), 0x302);
  ask(talk, io_command(2, 5, 0, 1, 512, 1), 0x7FF);
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), 5U);
  EXPECT_EQ(outcome_text(seen.commands()[0]), "connect: invalid parameter");
  EXPECT_EQ(outcome_text(seen.commands()[1]), "write to read-only range");
  EXPECT_EQ(outcome_text(seen.commands()[2]), "unrecovered read error");
  EXPECT_EQ(outcome_text(seen.commands()[3]), "ANA inaccessible");
  EXPECT_EQ(outcome_text(seen.commands()[4]), "status 0xff of type 7");
}

TEST(Nvme, CommandsWithoutAnAnswerAndAnswersWithoutACommandAreTold) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  connect_queue(talk, 1);
  talk.send(Side::b, completion(99));
  talk.send(Side::a, io_command(2, 5, 0, 1, 512, 1));
  talk.send(Side::a, io_command(2, 6, 8, 1, 512, 2));
  talk.send(Side::a, io_command(2, 5, 16, 1, 512, 3));  // the id is used again
  ask(talk, io_command(2, 7, 24, 1, 512, 4));
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), 6U);
  EXPECT_EQ(seen.commands()[3].outcome, Outcome::answer_only);
  EXPECT_EQ(describe(seen.commands()[3]), "NVMe command");
  EXPECT_EQ(outcome_text(seen.commands()[3]), "OK (the command was not captured)");
  EXPECT_EQ(seen.commands()[1].outcome, Outcome::unanswered);
  EXPECT_EQ(seen.commands()[1].block, 0U);
  EXPECT_EQ(seen.commands()[2].block, 24U);
  EXPECT_EQ(seen.commands()[4].block, 8U);
  EXPECT_EQ(seen.commands()[5].block, 16U);
  EXPECT_EQ(outcome_text(seen.commands()[5]), "no answer");
  EXPECT_EQ(seen.commands()[5].latency_ns, -1);
}

// An answer and its command that have changed places belong together.
TEST(Nvme, AnAnswerMayBeCapturedBeforeItsCommand) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  connect_queue(talk, 1);
  talk.send(Side::b, completion(50));
  talk.send(Side::a, io_command(2, 50, 77, 1, 512, 2));
  for (std::uint16_t i = 0; i < 20; ++i) ask(talk, io_command(2, i, i, 1, 512, 1));
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), 22U);
  for (const StorageCommand& one : seen.commands()) EXPECT_EQ(one.outcome, Outcome::succeeded);
  const auto early = std::ranges::find(seen.commands(), 77U, &StorageCommand::block);
  ASSERT_NE(early, seen.commands().end());
  EXPECT_EQ(early->latency_ns, 0);
  EXPECT_GT(early->request->frame, early->answer->frame);
  EXPECT_GE(early->last.frame, early->request->frame);
}

// The next command with the same id is another one. This costs one mistake, and not all that
// follow.
TEST(Nvme, AnAnswerWhoseCommandIsMissingIsNotThatOfTheNextOnes) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  connect_queue(talk, 1);
  talk.send(Side::b, completion(1));
  for (std::uint16_t i = 0; i < 3; ++i) ask(talk, io_command(2, 1, 100 + i, 1, 512, 1));
  talk.send(Side::b, completion(1));
  for (std::uint16_t i = 0; i < 80; ++i) talk.send(Side::a, io_command(2, 100 + i, 0, 1, 512, 1));
  const Seen seen(capture);
  std::size_t alone = 0;
  for (const StorageCommand& one : seen.commands()) {
    if (one.outcome == Outcome::answer_only) ++alone;
    const std::uint64_t block = one.block.value_or(0);
    if (block > 100 && block < 103) {
      EXPECT_GT(one.latency_ns, 0) << block;
    }
  }
  EXPECT_EQ(alone, 2U);
}

TEST(Nvme, TheOldestCommandsAreReportedWhenTooManyAreOpen) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  connect_queue(talk, 1);
  for (std::uint16_t number = 10; number < 15; ++number) {
    talk.send(Side::a, io_command(2, number, number, 1, 512, number));
  }
  talk.send(Side::b, completion(14));
  for (const StorageLimits& limits :
       {StorageLimits{.open_commands = 2}, StorageLimits{.open_commands_in_all = 2}}) {
    const Seen seen(capture, limits);
    ASSERT_EQ(seen.commands().size(), 6U);
    for (std::size_t i = 1; i < 4; ++i) {
      EXPECT_EQ(seen.commands()[i].block, 9 + i);
      EXPECT_EQ(seen.commands()[i].outcome, Outcome::unanswered);
    }
    EXPECT_EQ(seen.commands()[4].block, 14U);
    EXPECT_EQ(seen.commands()[4].outcome, Outcome::succeeded);
    EXPECT_EQ(seen.commands()[5].block, 13U);
  }
}

// With 96 bytes of each packet the commands are cut after 42 bytes, before the queue of a Connect.
TEST(Nvme, CutCommandsAreDecodedAsFarAsTheyGo) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  connect_queue(talk, 1);
  ask(talk, io_command(2, 5, 4711, 8, 4096, 1));
  const Seen little(cut(capture, 96));
  ASSERT_EQ(little.commands().size(), 2U);
  EXPECT_EQ(little.commands()[1].name, "command");
  EXPECT_EQ(little.commands()[1].outcome, Outcome::succeeded);
  EXPECT_EQ(little.commands()[1].bytes, 4096U);
  EXPECT_EQ(little.commands()[1].block, std::nullopt);
  const Seen enough(cut(capture, 128));
  ASSERT_EQ(enough.commands().size(), 2U);
  EXPECT_EQ(detail_text(enough.commands()[1]), "8 blocks at LBA 4711, namespace 3");
}

TEST(Nvme, TheHostMayBeEitherSide) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  talk.send(Side::a, completion(1));  // side a is the one with the first packet
  for (std::uint16_t number = 10; number < 16; ++number) {
    talk.send(Side::b, command(2, number));
    talk.send(Side::a, completion(number));
  }
  const Seen seen(capture);
  ASSERT_NE(seen.storage.of(0), nullptr);
  ASSERT_EQ(seen.commands().size(), 3U);  // the fourth completion is the one that shows it
  EXPECT_EQ(seen.commands()[2].requester, Side::b);
  EXPECT_EQ(seen.commands()[2].outcome, Outcome::succeeded);
}

// --- iSER and SRP --------------------------------------------------------------------------------

void put_be(Content& out, std::size_t at, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    out[at + i] = static_cast<std::byte>(value >> (8 * (size - 1 - i)));
  }
}

// READ(10) of `blocks` from `block`.
Content read_10(std::uint32_t block, std::uint16_t blocks) {
  Content out(16);
  put_be(out, 0, 0x28, 1);
  put_be(out, 2, block, 4);
  put_be(out, 7, blocks, 2);
  return out;
}

// Fixed sense data: ILLEGAL REQUEST, logical block address out of range.
Content sense() {
  Content out(18);
  put_be(out, 0, 0x70, 1);
  put_be(out, 2, 0x05, 1);
  put_be(out, 12, 0x2100, 2);
  return out;
}

void place(Content& out, std::size_t at, const Content& bytes) {
  std::ranges::copy(bytes, out.begin() + static_cast<std::ptrdiff_t>(at));
}

Content iser_command(std::uint32_t tag, std::uint32_t read_key) {
  Content out(28 + 48);
  put_be(out, 0, 0x14, 1);
  put_be(out, 16, read_key, 4);
  put_be(out, 20, 0x1000, 8);
  put_be(out, 28, 0x01, 1);
  put_be(out, 28 + 8, 0x0002, 2);  // the logical unit
  put_be(out, 28 + 16, tag, 4);
  put_be(out, 28 + 20, 4096, 4);
  place(out, 28 + 32, read_10(77, 8));
  return out;
}

Content iser_response(std::uint32_t tag, std::uint8_t status, const Content& data = {}) {
  Content out(28 + 48 + (data.empty() ? 0 : 2 + data.size()));
  put_be(out, 0, 0x10, 1);
  put_be(out, 28, 0x21, 1);
  put_be(out, 28 + 3, status, 1);
  put_be(out, 28 + 16, tag, 4);
  if (data.empty()) return out;
  put_be(out, 28 + 5, 2 + data.size(), 3);
  put_be(out, 28 + 48, data.size(), 2);
  place(out, 28 + 50, data);
  return out;
}

TEST(Iser, CommandsHaveTheirBlocksAndTheirStatus) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  talk.send(Side::a, iser_command(1, 0x99));
  talk.write(Side::b, 0x99, 0x1000, 4096);
  talk.send(Side::b, iser_response(1, 0));
  talk.send(Side::a, iser_command(2, 0x9A));
  talk.send(Side::b, iser_response(2, 2, sense()));
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), 2U);
  const StorageCommand& first = seen.commands()[0];
  EXPECT_EQ(describe(first), "iSER READ(10)");
  EXPECT_EQ(detail_text(first), "8 blocks at LBA 77, LUN 2");
  EXPECT_EQ(first.bytes, 4096U);
  EXPECT_EQ(first.keys, std::vector<std::uint32_t>{0x99});
  EXPECT_GT(first.transfer_ns, 0);
  EXPECT_EQ(outcome_text(first), "OK");
  EXPECT_EQ(outcome_text(seen.commands()[1]), "ILLEGAL REQUEST 21/00");
  EXPECT_EQ(seen.storage.of(0)->messages,
            (MessageCounts{{"READ(10)", 2}, {"SCSI Command", 2}, {"SCSI Response", 2}}));
}

Content srp_command(std::uint64_t tag, std::uint32_t key) {
  Content out(48 + 16);
  put_be(out, 0, 0x02, 1);
  put_be(out, 5, 0x01, 1);  // one direct descriptor for data to the initiator
  put_be(out, 8, tag, 8);
  put_be(out, 20, 0x0001, 2);
  place(out, 32, read_10(5, 3));
  put_be(out, 48, 0x1000, 8);
  put_be(out, 56, key, 4);
  put_be(out, 60, 1536, 4);
  return out;
}

Content srp_response(std::uint64_t tag, std::uint8_t status, const Content& data = {}) {
  Content out(36 + data.size());
  put_be(out, 0, 0xC1, 1);
  put_be(out, 8, tag, 8);
  put_be(out, 18, data.empty() ? 0 : 2, 1);
  put_be(out, 19, status, 1);
  put_be(out, 28, data.size(), 4);
  place(out, 36, data);
  return out;
}

TEST(Srp, CommandsHaveTheirBlocksAndTheirStatus) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  talk.send(Side::a, srp_command(0x1'0000'0001, 0x42));
  talk.write(Side::b, 0x42, 0x1000, 1536);
  talk.send(Side::b, srp_response(0x1'0000'0001, 0));
  talk.send(Side::a, srp_command(2, 0x43));
  talk.send(Side::b, srp_response(2, 2, sense()));
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), 2U);
  EXPECT_EQ(describe(seen.commands()[0]), "SRP READ(10)");
  EXPECT_EQ(detail_text(seen.commands()[0]), "3 blocks at LBA 5, LUN 1");
  EXPECT_EQ(seen.commands()[0].bytes, 1536U);
  EXPECT_EQ(seen.commands()[0].keys, std::vector<std::uint32_t>{0x42});
  EXPECT_GT(seen.commands()[0].transfer_ns, 0);
  EXPECT_EQ(outcome_text(seen.commands()[1]), "ILLEGAL REQUEST 21/00");
}

// As the answer to a request of task management, or to a command that the target cannot read.
TEST(Srp, AResponseCodeIsAFailure) {
  MadeCapture capture;
  RoceTalk talk(capture, {.mtu_bytes = 1024});
  const std::vector<std::pair<std::uint8_t, std::string>> codes = {
      {0x00, "OK"},
      {0x02, "REQUEST FIELDS INVALID"},
      {0x04, "TASK MANAGEMENT FUNCTION NOT SUPPORTED"},
      {0x05, "TASK MANAGEMENT FUNCTION FAILED"},
      {0x77, "response code 0x77"}};
  for (const auto& [code, text] : codes) {
    talk.send(Side::a, srp_command(code, 0x42));
    Content response = srp_response(code, 0);
    put_be(response, 18, 0x01, 1);  // the response data are valid
    put_be(response, 32, 4, 4);
    response.resize(40);
    put_be(response, 39, code, 1);
    talk.send(Side::b, response);
  }
  const Seen seen(capture);
  ASSERT_EQ(seen.commands().size(), codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const StorageCommand& one = seen.commands()[i];
    EXPECT_EQ(one.outcome, codes[i].first == 0 ? Outcome::succeeded : Outcome::failed);
    EXPECT_EQ(outcome_text(one), codes[i].second);
    EXPECT_EQ(one.status, codes[i].first);
  }
}

// The sanitizers find a read beyond the end.
TEST(StorageTest, EveryPrefixOfEveryMessageIsTakenOnItsOwn) {
  const std::vector<std::vector<Content>> conversations = {
      {iser_command(1, 0x99), iser_response(1, 2, sense())},
      {srp_command(1, 0x42), srp_response(1, 2, sense())},
      {command(0x7F, 1, 0x01, 1), completion(1), io_command(2, 5, 0, 1, 512, 1)},
      {transfers(chain({{.command = 8, .id = 1, .body = read_body(10, 0, 1)}}))[0],
       transfers(chain({{.command = 5, .id = 1, .response = true, .body = created_body()}}))[0],
       transfers(chain({{.command = 5, .id = 2, .body = create_body("name")}}))[0]}};
  for (const auto& messages : conversations) {
    MadeCapture capture;
    RoceTalk talk(capture, {.mtu_bytes = 1024});
    talk.send(Side::a, messages.front());
    for (const Content& message : messages) {
      for (std::size_t size = 0; size <= message.size(); ++size) {
        talk.send(Side::a, Bytes(message).first(size));
        talk.send(Side::b, Bytes(message).first(size));
      }
    }
    const Seen seen(capture);
    EXPECT_NE(seen.storage.of(0), nullptr);
  }
}

// A stored capture without one of its packets.
struct Stored {
  Analysis analysis;
  CommandLog log;
  StorageTracker storage{analysis.connections(), log};

  explicit Stored(const std::string& name, std::uint64_t left_out = 0) {
    analysis.add_sink(storage);
    const auto source = open_capture(std::string(WEFT_TEST_DATA) + "/" + name + ".pcap.zst");
    RawPacket packet;
    for (std::uint64_t frame = 1; source->next(packet); ++frame) {
      if (frame != left_out) analysis.add(packet);
    }
    analysis.finish();
    storage.finish();
  }
};

// Linux's host and target: what the host has written and read is known from its script.
TEST(StoredStorage, EachCommandOfNvmeIsThereAndHasSucceeded) {
  const Stored read("nvme_rxe");
  ASSERT_EQ(read.analysis.connections().size(), 2U);
  std::map<std::string_view, unsigned> counts;
  for (const StorageCommand& one : read.log.commands) {
    // The host disconnects while the controller still has the request for an event.
    const bool event = one.name == "async event";
    EXPECT_EQ(one.outcome, event ? Outcome::unanswered : Outcome::succeeded) << describe(one);
    if (one.queue == 1) ++counts[one.name];
  }
  EXPECT_EQ(counts["connect"], 1U);
  EXPECT_EQ(counts["flush"], 1U);
  EXPECT_EQ(counts["dataset management"], 1U);
  EXPECT_EQ(counts["write zeroes"], 1U);
  EXPECT_GE(counts["write"], 8U);
}

TEST(StoredStorage, TheQueueIsKnownWithoutItsConnectCommand) {
  const Stored whole("nvme_rxe");
  const auto connect = std::ranges::find_if(whole.log.commands, [](const StorageCommand& one) {
    return one.name == "connect" && one.queue == 1;
  });
  ASSERT_NE(connect, whole.log.commands.end());
  const Stored read("nvme_rxe", connect->request->frame);
  std::size_t reads = 0;
  for (const StorageCommand& one : read.log.commands) {
    EXPECT_FALSE(one.name == "connect" && one.queue == 1);
    reads += one.queue == 1 && one.name == "read" ? 1 : 0;
  }
  EXPECT_GT(reads, 8U);
}

TEST(StorageTest, StoredCapturesOfOtherProtocolsHaveNone) {
  for (const char* name : {"nfs3_rxe", "nfs4_siw", "rxe_sizes", "siw_sizes", "rxe_perf_write"}) {
    const Stored read(name);
    EXPECT_TRUE(read.log.commands.empty()) << name;
    for (const Connection& one : read.analysis.connections()) {
      EXPECT_EQ(read.storage.of(one.id), nullptr) << name;
    }
  }
}

TEST(StorageTest, OtherSendsAreNone) {
  MadeCapture capture;
  RoceTalk talk(capture, {});
  talk.connect();
  for (std::size_t size = 0; size < 100; ++size) {
    talk.send(Side::a, size);
    talk.send(Side::b, 16);
  }
  EXPECT_EQ(Seen(capture).storage.of(0), nullptr);
}

}  // namespace
}  // namespace weft::capture::test
