// NFS over RDMA, generated: what is decoded, and that bulk data comes out as it went in.
#include "weft/capture/nfs.hpp"

#include <gtest/gtest.h>

#include "capture/rpc/nfs4_table.h"
#include "capture/rpc_builder.h"
#include "capture/rpc_log.h"
#include "support/random.h"
#include "weft/capture/rpc_findings.hpp"
#include "wire/xdr.h"

namespace weft::capture::test {
namespace {

using weft::test::pattern;

constexpr Side client = Side::a;
constexpr Side server = Side::b;
constexpr std::uint32_t xid = 0x11223344;
const Buffer handle = pattern(28, 50);
const Buffer child = pattern(28, 51);

struct Nfs : testing::Test {
  TrafficScript script{0, 256};

  static Buffer call3(std::uint32_t procedure, const Buffer& arguments) {
    return rpc_call(xid, nfs_program, 3, procedure, arguments);
  }
  static Buffer call4(const Buffer& arguments) {
    return rpc_call(xid, nfs_program, 4, 1, arguments);
  }
  RpcLog exchange(const Buffer& call, const Buffer& reply) {
    script.send(client, rdma_message({.xid = xid}, call))
        .send(server, rdma_message({.xid = xid}, reply));
    return followed(script);
  }
};

// An NFS version 3 READ whose bytes are written to two segments of the client.
struct Read3 {
  Buffer content;
  Buffer call;
  Buffer reply;  // whole
  TrafficScript script{0, 256};

  explicit Read3(std::size_t size, bool write_padding = false, std::uint32_t said = 0) {
    content = pattern(size);
    call = rpc_call(xid, nfs_program, 3, 6, Xdr().opaque(handle).u64(4096).u32(size));
    const Xdr head = Xdr().u32(0).u32(0).u32(size).u32(1).u32(said == 0 ? size : said);
    reply = rpc_reply(xid, Xdr(head).fixed(content));
    const auto first = static_cast<std::uint32_t>(size / 3);
    const auto rest =
        static_cast<std::uint32_t>((write_padding ? wire::xdr_padded(size) : size) - first);
    RdmaHeader asks{.xid = xid};
    asks.lists.writes = {{{1, first, 0x1000}, {2, 4096, 0x2000}}};
    RdmaHeader tells{.xid = xid};
    tells.lists.writes = {{{1, first, 0x1000}, {2, rest, 0x2000}}};
    if (first == 0) {
      asks.lists.writes[0].erase(asks.lists.writes[0].begin());
      tells.lists.writes[0].erase(tells.lists.writes[0].begin());
    }
    Buffer second(content.begin() + first, content.end());
    second.resize(rest);
    script.send(client, rdma_message(asks, call));
    if (first != 0) script.write(server, 1, 0x1000, {content.begin(), content.begin() + first});
    script.write(server, 2, 0x2000, second).send(server, rdma_message(tells, rpc_reply(xid, head)));
  }
};

TEST(Nfs3Read, GivesExactlyTheBytes) {
  for (const std::size_t base : {0U, 1000U}) {
    for (std::size_t more = 1; more <= 9; ++more) {
      for (const bool padding : {false, true}) {
        const Read3 made(base + more, padding);
        const RpcLog log = followed(made.script);
        ASSERT_EQ(log.rpcs.size(), 1U);
        const NfsOperation& operation = log.rpcs[0].nfs->operations.at(0);
        EXPECT_EQ(operation.name, "READ");
        EXPECT_EQ(operation.handle, handle);
        EXPECT_EQ(operation.offset, 4096U);
        EXPECT_TRUE(operation.end_of_file);
        EXPECT_EQ(operation.bulk, Assembled(made.content)) << base + more;
        EXPECT_EQ(log.rpcs[0].reply->whole, Assembled(made.reply)) << base + more;
        EXPECT_EQ(log.findings.size(), 0U) << log.all();
      }
    }
  }
}

TEST(Nfs3Read, IsNeverSilentlyWrong) {
  const Read3 made(1001);
  for (std::size_t drop = 1; drop < made.script.events.size(); ++drop) {
    RpcLog log;
    RpcTracker tracker(log);
    made.script.feed_without(drop, tracker);
    tracker.finish();
    ASSERT_EQ(log.rpcs.size(), 1U);
    if (!log.rpcs[0].reply) continue;
    const Assembled& bulk = log.rpcs[0].nfs->operations.at(0).bulk;
    EXPECT_FALSE(bulk.whole()) << "without event " << drop;
    ASSERT_EQ(bulk.size(), made.content.size());
    for (std::size_t i = 0; i < bulk.size(); ++i) {
      if (bulk.whole(i, i + 1)) {
        ASSERT_EQ(bulk.bytes()[i], made.content[i]);
      }
    }
  }
}

TEST(Nfs3Read, ChecksTheLengthAgainstTheChunk) {
  const Read3 made(100, false, 90);
  const RpcLog log = followed(made.script);
  EXPECT_EQ(log.count(finding::length_mismatch), 1U) << log.all();
}

// RFC 8166 §3.4.6.2: the responder has found the result small enough.
TEST_F(Nfs, ReadsInlineWhereTheChunkIsUnused) {
  RdmaHeader asks{.xid = xid};
  asks.lists.writes = {{{1, 4096, 0x1000}}};
  RdmaHeader tells{.xid = xid};
  tells.lists.writes = {{{1, 0, 0x1000}}};
  const Buffer content = pattern(13);
  script.send(client, rdma_message(asks, call3(6, Xdr().opaque(handle).u64(0).u32(4096))))
      .send(server, rdma_message(
                        tells, rpc_reply(xid, Xdr().u32(0).u32(0).u32(13).u32(1).opaque(content))));
  const RpcLog log = followed(script);
  EXPECT_EQ(log.rpcs.at(0).nfs->operations.at(0).bulk, Assembled(content));
  EXPECT_EQ(log.findings.size(), 0U) << log.all();
}

// One chunk whose reply is never seen must not serve a later call.
TEST_F(Nfs, ChunksBelongToTheirCall) {
  RdmaHeader asks{.xid = 1};
  asks.lists.writes = {{{1, 100, 0x1000}}};
  script.send(client, rdma_message(asks, rpc_call(1, nfs_program, 3, 6,
                                                  Xdr().opaque(handle).u64(0).u32(100))));
  script.write(server, 1, 0x1000, pattern(100));
  const Buffer content = pattern(8, 9);
  const RpcLog log = exchange(call3(6, Xdr().opaque(handle).u64(0).u32(8)),
                              rpc_reply(xid, Xdr().u32(0).u32(0).u32(8).u32(1).opaque(content)));
  EXPECT_EQ(log.rpcs.at(0).nfs->operations.at(0).bulk, Assembled(content));
}

TEST_F(Nfs, WritesByReadChunk) {
  for (std::size_t size = 1; size <= 9; ++size) {
    TrafficScript one(0, 256);
    const Buffer content = pattern(size);
    const Buffer head = call3(7, Xdr().opaque(handle).u64(512).u32(size).u32(2).u32(size));
    RdmaHeader asks{.xid = xid};
    asks.lists.reads = {
        {static_cast<std::uint32_t>(head.size()), {1, static_cast<std::uint32_t>(size), 0x1000}}};
    one.send(client, rdma_message(asks, head))
        .read(server, 1, 0x1000, content)
        .send(server,
              rdma_message({.xid = xid},
                           rpc_reply(xid, Xdr().u32(0).u32(0).u32(0).u32(size).u32(2).u64(7))));
    const RpcLog log = followed(one);
    const Rpc& rpc = log.rpcs.at(0);
    EXPECT_EQ(rpc.nfs->operations.at(0).bulk, Assembled(content));
    EXPECT_EQ(rpc.nfs->operations.at(0).offset, 512U);
    EXPECT_TRUE(rpc.nfs->call_decoded);
    EXPECT_TRUE(rpc.nfs->reply_decoded);
    EXPECT_EQ(rpc.call->message, Assembled(Xdr().raw(head).fixed(content).bytes()));
  }
}

TEST_F(Nfs, Version3NamesAndHandles) {
  const RpcLog log = exchange(
      call3(3, Xdr().opaque(handle).text("file")),
      rpc_reply(xid, Xdr().u32(0).opaque(child).u32(1).zeros(20).u64(1234).zeros(56).u32(0)));
  const NfsOperation& operation = log.rpcs.at(0).nfs->operations.at(0);
  EXPECT_EQ(operation.name, "LOOKUP");
  EXPECT_EQ(operation.entry, "file");
  EXPECT_EQ(operation.found, child);
  EXPECT_EQ(operation.file_size, 1234U);
  EXPECT_TRUE(log.rpcs[0].nfs->reply_decoded);
  EXPECT_EQ(describe(log.rpcs[0]), "NFSv3 LOOKUP");
}

TEST_F(Nfs, Version3Directories) {
  const RpcLog log = exchange(call3(17, Xdr().opaque(handle).u64(0).u64(0).u32(512).u32(4096)),
                              rpc_reply(xid, Xdr()
                                                 .u32(0)
                                                 .u32(0)
                                                 .u64(1)
                                                 .u32(1)
                                                 .u64(7)
                                                 .text("one")
                                                 .u64(1)
                                                 .u32(0)
                                                 .u32(1)
                                                 .opaque(child)
                                                 .u32(1)
                                                 .u64(8)
                                                 .text("three")
                                                 .u64(2)
                                                 .u32(1)
                                                 .zeros(84)
                                                 .u32(0)
                                                 .u32(0)
                                                 .u32(1)));
  const NfsOperation& operation = log.rpcs.at(0).nfs->operations.at(0);
  ASSERT_EQ(operation.entries.size(), 2U);
  EXPECT_EQ(operation.entries[0].name, "one");
  EXPECT_EQ(operation.entries[0].handle, child);
  EXPECT_EQ(operation.entries[1].name, "three");
  EXPECT_EQ(operation.entries[1].file_id, 8U);
  EXPECT_TRUE(operation.end_of_file);
  EXPECT_TRUE(log.rpcs[0].nfs->reply_decoded);
}

TEST_F(Nfs, Version3Failures) {
  const RpcLog log =
      exchange(call3(3, Xdr().opaque(handle).text("no")), rpc_reply(xid, Xdr().u32(2).u32(0)));
  const NfsOperation& operation = log.rpcs.at(0).nfs->operations.at(0);
  EXPECT_EQ(nfs_status(3, operation.status), "NFS3ERR_NOENT");
  EXPECT_TRUE(log.rpcs[0].nfs->reply_decoded);
  EXPECT_EQ(log.findings.size(), 0U) << "a file that does not exist is no fault of the protocol";
}

TEST_F(Nfs, Version3SizesAndRenames) {
  const RpcLog set = exchange(
      call3(2,
            Xdr().opaque(handle).u32(0).u32(0).u32(0).u32(1).u64(5555).u32(0).u32(2).u64(3).u32(0)),
      rpc_reply(xid, Xdr().u32(0).u32(0).u32(0)));
  EXPECT_EQ(set.rpcs.at(0).nfs->operations.at(0).new_size, 5555U);
  EXPECT_TRUE(set.rpcs[0].nfs->call_decoded);
  script = TrafficScript();
  const RpcLog renamed =
      exchange(call3(14, Xdr().opaque(handle).text("old").opaque(child).text("new")),
               rpc_reply(xid, Xdr().u32(0).u32(0).u32(0).u32(0).u32(0)));
  const NfsOperation& operation = renamed.rpcs.at(0).nfs->operations.at(0);
  EXPECT_EQ(operation.entry, "old");
  EXPECT_EQ(operation.target, "new");
  EXPECT_EQ(operation.target_directory, child);
  EXPECT_TRUE(renamed.rpcs[0].nfs->reply_decoded);
}

// Two READs in one COMPOUND: each takes the next chunk (RFC 8267 §6.1).
TEST_F(Nfs, CompoundsTakeTheirChunksInOrder) {
  const Buffer first = pattern(5, 1);
  const Buffer second = pattern(1000, 2);
  const Buffer arguments = Xdr()
                               .text("tag")
                               .u32(2)
                               .u32(5)
                               .u32(nfs4::putfh)
                               .opaque(handle)
                               .u32(nfs4::read)
                               .zeros(16)
                               .u64(0)
                               .u32(5)
                               .u32(nfs4::read)
                               .zeros(16)
                               .u64(100)
                               .u32(1000)
                               .u32(nfs4::getattr)
                               .u32(1)
                               .u32(1U << 4)
                               .u32(nfs4::getfh);
  const auto results = [&](bool whole) {
    Xdr out;
    out.u32(0).text("tag").u32(5).u32(nfs4::putfh).u32(0);
    out.u32(nfs4::read).u32(0).u32(0).u32(5);
    if (whole) out.fixed(first);
    out.u32(nfs4::read).u32(0).u32(1).u32(1000);
    if (whole) out.fixed(second);
    out.u32(nfs4::getattr).u32(0).u32(1).u32(1U << 4).u32(8).u64(1100);
    out.u32(nfs4::getfh).u32(0).opaque(handle);
    return out.bytes();
  };
  RdmaHeader asks{.xid = xid};
  asks.lists.writes = {{{1, 5, 0x1000}}, {{2, 1000, 0x2000}}};
  script.send(client, rdma_message(asks, call4(arguments)))
      .write(server, 1, 0x1000, first)
      .write(server, 2, 0x2000, second)
      .send(server, rdma_message(asks, rpc_reply(xid, results(false))));
  const RpcLog log = followed(script);
  const NfsExchange& nfs = *log.rpcs.at(0).nfs;
  ASSERT_EQ(nfs.operations.size(), 5U);
  EXPECT_EQ(nfs.tag, "tag");
  EXPECT_EQ(nfs.operations[1].bulk, Assembled(first));
  EXPECT_EQ(nfs.operations[2].bulk, Assembled(second));
  EXPECT_EQ(nfs.operations[2].handle, handle);
  EXPECT_EQ(nfs.operations[3].file_size, 1100U);
  EXPECT_TRUE(nfs.reply_decoded);
  EXPECT_EQ(log.rpcs[0].reply->whole, Assembled(rpc_reply(xid, results(true))));
  EXPECT_EQ(describe(log.rpcs[0]), "NFSv4.2 PUTFH READ READ GETATTR GETFH");
  EXPECT_EQ(log.findings.size(), 0U) << log.all();
}

TEST_F(Nfs, CompoundsFollowTheirFileHandle) {
  const Buffer arguments = Xdr()
                               .text("")
                               .u32(1)
                               .u32(6)
                               .u32(nfs4::putfh)
                               .opaque(handle)
                               .u32(nfs4::savefh)
                               .u32(nfs4::lookup)
                               .text("file")
                               .u32(nfs4::getfh)
                               .u32(nfs4::remove)
                               .text("x")
                               .u32(nfs4::restorefh);
  const Buffer results = Xdr()
                             .u32(2)
                             .text("")
                             .u32(5)
                             .u32(nfs4::putfh)
                             .u32(0)
                             .u32(nfs4::savefh)
                             .u32(0)
                             .u32(nfs4::lookup)
                             .u32(0)
                             .u32(nfs4::getfh)
                             .u32(0)
                             .opaque(child)
                             .u32(nfs4::remove)
                             .u32(2);
  const RpcLog log = exchange(call4(arguments), rpc_reply(xid, results));
  const NfsExchange& nfs = *log.rpcs.at(0).nfs;
  ASSERT_EQ(nfs.operations.size(), 6U);
  EXPECT_EQ(nfs.operations[2].handle, handle);
  EXPECT_EQ(nfs.operations[2].found, child);
  EXPECT_EQ(nfs.operations[4].handle, child);
  EXPECT_EQ(nfs.operations[4].saved, handle);
  EXPECT_EQ(nfs.operations[4].status, 2U);
  EXPECT_FALSE(nfs.operations[5].answered);
  EXPECT_TRUE(nfs.reply_decoded);
}

TEST_F(Nfs, CompoundsStopAtWhatIsNotKnown) {
  const Buffer arguments = Xdr()
                               .text("")
                               .u32(2)
                               .u32(3)
                               .u32(nfs4::putfh)
                               .opaque(handle)
                               .u32(9999)
                               .u32(1)
                               .u32(nfs4::getfh);
  const RpcLog log = exchange(call4(arguments), rpc_reply(xid, Xdr().u32(10044).text("").u32(0)));
  const NfsExchange& nfs = *log.rpcs.at(0).nfs;
  EXPECT_FALSE(nfs.call_decoded);
  ASSERT_EQ(nfs.operations.size(), 2U);
  EXPECT_EQ(nfs.operations[1].name, "unknown operation");
  EXPECT_EQ(nfs_status(4, nfs.status), "NFS4ERR_OP_ILLEGAL");
}

TEST_F(Nfs, CallbacksAreRecognised) {
  const Buffer arguments = Xdr()
                               .text("")
                               .u32(1)
                               .u32(1)
                               .u32(2)
                               .u32(11)
                               .zeros(16)
                               .u32(17)
                               .u32(2)
                               .u32(5)
                               .u32(0)
                               .u32(0)
                               .u32(4)
                               .zeros(16)
                               .u32(0)
                               .opaque(handle);
  const Buffer results = Xdr().u32(0).text("").u32(2).u32(11).u32(0).zeros(32).u32(4).u32(0);
  script.send(server, rdma_message({.xid = xid}, rpc_call(xid, 0x40000000, 1, 1, arguments)))
      .send(client, rdma_message({.xid = xid}, rpc_reply(xid, results)));
  const RpcLog log = followed(script);
  EXPECT_TRUE(log.rpcs.at(0).nfs->call_decoded);
  EXPECT_TRUE(log.rpcs[0].nfs->reply_decoded);
  EXPECT_EQ(describe(log.rpcs[0]), "NFS callback CB_SEQUENCE CB_RECALL");
  ASSERT_TRUE(log.rpcs[0].nfs->session);
  EXPECT_EQ(log.rpcs[0].nfs->session->sequence, 17U);
  EXPECT_EQ(log.rpcs[0].nfs->session->slot, 2U);
  EXPECT_EQ(log.rpcs[0].nfs->session->highest_slot, 5U);
}

// RFC 8881 §20.7: its arguments are those of CB_RECALL_ANY.
TEST_F(Nfs, CallbacksBehindRecallableObjectsAreDecoded) {
  const Buffer arguments =
      Xdr().text("").u32(1).u32(1).u32(2).u32(9).u32(64).u32(1).u32(0x3).u32(10).u32(7);
  const Buffer results = Xdr().u32(0).text("").u32(2).u32(9).u32(0).u32(10).u32(0);
  script.send(server, rdma_message({.xid = xid}, rpc_call(xid, 0x40000000, 1, 1, arguments)))
      .send(client, rdma_message({.xid = xid}, rpc_reply(xid, results)));
  const RpcLog log = followed(script);
  EXPECT_TRUE(log.rpcs.at(0).nfs->call_decoded);
  EXPECT_TRUE(log.rpcs[0].nfs->reply_decoded);
  EXPECT_EQ(describe(log.rpcs[0]), "NFS callback CB_RECALLABLE_OBJ_AVAIL CB_RECALL_SLOT");
}

// RFC 2203 §5.3.2.2: behind the length and the sequence number the arguments are in the clear.
struct Gss : Nfs {
  static Buffer credential(std::uint32_t service) {
    return Xdr().u32(1).u32(0).u32(77).u32(service).opaque(pattern(4));
  }
  static Buffer call(std::uint32_t service, const Buffer& arguments) {
    return Xdr()
        .u32(xid)
        .u32(0)
        .u32(2)
        .u32(nfs_program)
        .u32(3)
        .u32(6)
        .u32(6)
        .opaque(credential(service))
        .u32(6)
        .opaque(pattern(20))
        .raw(arguments);
  }
  static Buffer reply(const Buffer& results) {
    return Xdr().u32(xid).u32(1).u32(0).u32(6).opaque(pattern(20)).u32(0).raw(results);
  }
  static Buffer integrity(const Buffer& inner) {
    return Xdr().opaque(Xdr().u32(77).raw(inner).bytes()).opaque(pattern(28));
  }
};

TEST_F(Gss, IntegrityIsUnwrapped) {
  const Buffer content = pattern(5);
  const RpcLog log = exchange(call(2, integrity(Xdr().opaque(handle).u64(64).u32(5))),
                              reply(integrity(Xdr().u32(0).u32(0).u32(5).u32(1).opaque(content))));
  const Rpc& rpc = log.rpcs.at(0);
  EXPECT_EQ(rpc.gss, GssProtection::integrity);
  EXPECT_EQ(rpc.flavor, wire::AuthFlavor::gss);
  EXPECT_EQ(rpc.nfs->operations.at(0).offset, 64U);
  EXPECT_EQ(rpc.nfs->operations[0].bulk, Assembled(content));
  EXPECT_TRUE(rpc.nfs->reply_decoded);
}

TEST_F(Gss, PrivacyIsMarked) {
  const RpcLog log =
      exchange(call(3, Xdr().opaque(pattern(60))), reply(Xdr().opaque(pattern(100))));
  const Rpc& rpc = log.rpcs.at(0);
  EXPECT_EQ(rpc.gss, GssProtection::privacy);
  EXPECT_FALSE(rpc.nfs->call_decoded);
  EXPECT_TRUE(rpc.nfs->operations.empty());
  EXPECT_EQ(rpc.status, wire::RpcStatus::success);
}

TEST_F(Gss, WithoutProtectionNothingIsWrapped) {
  const RpcLog log = exchange(call(1, Xdr().opaque(handle).u64(64).u32(5)),
                              reply(Xdr().u32(0).u32(0).u32(5).u32(1).opaque(pattern(5))));
  EXPECT_EQ(log.rpcs.at(0).gss, GssProtection::none);
  EXPECT_TRUE(log.rpcs[0].nfs->reply_decoded);
}

TEST(NfsNames, AreKnown) {
  EXPECT_EQ(nfs3_procedure(6), "READ");
  EXPECT_EQ(nfs3_procedure(22), "unknown procedure");
  EXPECT_EQ(nfs4_operation(53, false), "SEQUENCE");
  EXPECT_EQ(nfs4_operation(68, false), "READ_PLUS");
  EXPECT_EQ(nfs4_operation(11, true), "CB_SEQUENCE");
  EXPECT_EQ(nfs4_operation(76, false), "unknown operation");
  EXPECT_EQ(nfs_status(4, 0), "OK");
  EXPECT_EQ(nfs_status(3, 10008), "NFS3ERR_JUKEBOX");
  EXPECT_EQ(nfs_status(4, 10008), "NFS4ERR_DELAY");
  EXPECT_EQ(nfs_status(4, 9), "status 9");
}

// --- Programs beside NFS -------------------------------------------------------------------------

TEST(RpcNames, ProceduresOfTheProgramsBesideNfs) {
  const auto name = [](std::uint32_t program, std::uint32_t version, std::uint32_t procedure) {
    Rpc rpc;
    rpc.has_header = true;
    rpc.program = program;
    rpc.version = version;
    rpc.procedure = procedure;
    return describe(rpc);
  };
  EXPECT_EQ(name(100'227, 3, 1), "NFSACLv3 GETACL");
  EXPECT_EQ(name(100'227, 2, 4), "NFSACLv2 ACCESS");
  EXPECT_EQ(name(100'227, 3, 4), "NFSACL version 3 procedure 4");
  EXPECT_EQ(name(100'005, 3, 1), "MOUNTv3 MNT");
  EXPECT_EQ(name(100'005, 3, 6), "MOUNT version 3 procedure 6");
  EXPECT_EQ(name(400'000, 1, 0), "program 400000 version 1 procedure 0");
}

}  // namespace
}  // namespace weft::capture::test
