// RPCs of every shape, as captures of both transports that are damaged in every way: what comes out
// is what was sent, or said to be incomplete, with the ranges that are missing. Never silently
// wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "capture/iwarp_messages.h"
#include "capture/made_roce.h"
#include "capture/made_rpcs.h"
#include "capture/rpc_builder.h"
#include "support/random.h"

namespace weft::capture::test {
namespace {

using weft::test::pattern;
using weft::test::Random;
using wire::RpcRdmaProcedure;

constexpr Side client = Side::a;
constexpr Side server = Side::b;
constexpr std::uint32_t program = 0x20000001;

// What the two sides meant.
struct Meant {
  Buffer call;
  Buffer reply;
  Buffer chunk;  // the reply's write chunk
};
using MeantByXid = std::map<std::uint32_t, Meant>;

// Four RPCs: read chunks, a call in a chunk, a write chunk, and replies in and beside a reply
// chunk.
class Rpcs {
 public:
  Rpcs(std::size_t chunks, std::size_t length) : chunks_(chunks), length_(length) {}

  void run(auto& talk) {
    first(talk);
    read_chunks(talk);
    long_call(talk);
    write_chunk(talk);
    long_reply(talk);
  }
  MeantByXid meant;

 private:
  // So that the connection is known to carry RPCs.
  void first(auto& talk) {
    tell(talk, {.xid = 1}, call(1), {.xid = 1}, rpc_reply(1), [] {});
  }

  Buffer call(std::uint32_t xid, const Buffer& arguments = {}) {
    return meant[xid].call = rpc_call(xid, program, 1, 7, arguments);
  }

  void tell(auto& talk, const RdmaHeader& asks, const Buffer& call, const RdmaHeader& tells,
            const Buffer& reply, const auto& between) {
    talk.send(client, Bytes(rdma_message(asks, call)));
    between();
    if (meant[asks.xid].reply.empty()) meant[asks.xid].reply = reply;
    talk.send(server, Bytes(rdma_message(tells, reply)));
  }

  // Each of two segments, with XDR between and behind them.
  void read_chunks(auto& talk) {
    RdmaHeader header{.xid = 2};
    Buffer whole = call(2);
    Buffer inline_part = whole;
    std::vector<Buffer> contents;
    for (std::size_t i = 0; i < chunks_; ++i) {
      contents.push_back(pattern(length_ + i, i + 1));
      const auto size = static_cast<std::uint32_t>(contents.back().size());
      const Buffer tail = Xdr().u32(0xABCD0000 + i);
      whole = joined(whole, Xdr().u32(size));
      const auto position = static_cast<std::uint32_t>(whole.size());
      const auto handle = static_cast<std::uint32_t>(10 * i + 1);
      header.lists.reads.push_back({position, {handle, size / 2, 0x1000 + i * 0x10000}});
      header.lists.reads.push_back({position, {handle + 1, size - size / 2, 0x8000 + i * 0x10000}});
      whole = joined(joined(whole, Xdr().fixed(contents.back())), tail);
      inline_part = joined(joined(inline_part, Xdr().u32(size)), tail);
    }
    std::erase_if(header.lists.reads, [](const auto& read) { return read.target.length == 0; });
    meant[2].call = whole;
    tell(talk, header, inline_part, {.xid = 2}, rpc_reply(2), [&] {
      for (const auto& read : header.lists.reads) {
        const Bytes content = contents[read.target.handle / 10];
        const std::size_t half = content.size() / 2;
        const bool second = read.target.handle % 10 == 2;
        talk.read(server, read.target.handle, read.target.offset,
                  second ? content.subspan(half) : content.first(half));
      }
    });
  }

  void long_call(auto& talk) {
    const Buffer whole = call(3, Xdr().opaque(pattern(700 + length_, 40)));
    const auto size = static_cast<std::uint32_t>(whole.size());
    RdmaHeader header{.xid = 3, .procedure = RpcRdmaProcedure::nomsg};
    header.lists.reads = {{0, {30, 500, 0x1000}}, {0, {31, size - 500, 0x2000}}};
    tell(talk, header, {}, {.xid = 3}, rpc_reply(3), [&] {
      talk.read(server, 30, 0x1000, Bytes(whole).first(500));
      talk.read(server, 31, 0x2000, Bytes(whole).subspan(500));
    });
  }

  // Of two segments, the first of which is written by two RDMA Writes; and a reply chunk that is
  // not used.
  void write_chunk(auto& talk) {
    const Buffer content = pattern(600 + length_, 50);
    const auto rest = static_cast<std::uint32_t>(content.size()) - 600;
    RdmaHeader asks{.xid = 4};
    asks.lists.writes = {{{40, 600, 0x1000}, {41, 2'000, 0x2000}}};
    asks.lists.reply = Chunk{{42, 4'000, 0x3000}};
    RdmaHeader tells{.xid = 4};
    tells.lists.writes = {{{40, 600, 0x1000}, {41, rest, 0x2000}}};
    tells.lists.reply = Chunk{{42, 0, 0x3000}};
    meant[4].chunk = content;
    tell(talk, asks, call(4), tells, rpc_reply(4, Xdr().u32(content.size())), [&] {
      talk.write(server, 40, 0x1000, Bytes(content).first(300));
      talk.write(server, 40, 0x1000 + 300, Bytes(content).subspan(300, 300));
      talk.write(server, 41, 0x2000, Bytes(content).subspan(600));
    });
  }

  void long_reply(auto& talk) {
    const Buffer reply = rpc_reply(5, Xdr().opaque(pattern(900 + length_, 60)));
    const auto size = static_cast<std::uint32_t>(reply.size());
    RdmaHeader asks{.xid = 5};
    asks.lists.reply = Chunk{{50, 512, 0x1000}, {51, 4'000, 0x2000}};
    RdmaHeader tells{.xid = 5, .procedure = RpcRdmaProcedure::nomsg};
    tells.lists.reply = Chunk{{50, 512, 0x1000}, {51, size - 512, 0x2000}};
    meant[5].reply = reply;
    tell(talk, asks, call(5), tells, {}, [&] {
      talk.write(server, 50, 0x1000, Bytes(reply).first(512));
      talk.write(server, 51, 0x2000, Bytes(reply).subspan(512));
    });
  }

  std::size_t chunks_;
  std::size_t length_;
};

struct Made {
  MadeCapture capture;
  MeantByXid meant;
};

struct Way {
  const char* name;
  Made (*make)(std::size_t chunks, std::size_t length, std::uint32_t first);
};

Made iwarp(std::size_t chunks, std::size_t length, std::uint32_t first, const MpaOptions& mpa) {
  Made made;
  IwarpTalk talk(made.capture, {.first_a = first, .first_b = first + 77, .mss_bytes = 300}, mpa);
  talk.connect();
  IwarpMessages messages(talk, 250);
  Rpcs rpcs(chunks, length);
  rpcs.run(messages);
  talk.close();
  made.meant = std::move(rpcs.meant);
  return made;
}

Made roce(std::size_t chunks, std::size_t length, std::uint32_t first) {
  Made made;
  RoceTalk talk(made.capture, {.psn_a = first & 0xFFFFFF, .psn_b = (first + 77) & 0xFFFFFF});
  talk.connect();
  Rpcs rpcs(chunks, length);
  rpcs.run(talk);
  talk.disconnect();
  made.meant = std::move(rpcs.meant);
  return made;
}

const Way ways[] = {
    {"Iwarp", [](auto... arguments) { return iwarp(arguments..., {}); }},
    {"IwarpMarkersAnywhere",
     [](auto... arguments) {
       return iwarp(arguments..., {.markers_a = true, .markers_b = true, .aligned = false});
     }},
    {"IwarpWithoutCrc",
     [](auto... arguments) { return iwarp(arguments..., {.crc = false, .aligned = false}); }},
    {"Roce", roce},
};

// How many of the RPCs are whole in all that was meant.
std::size_t whole_ones(const RpcLog& log, const MeantByXid& meant) {
  std::size_t whole = 0;
  for (const Rpc& rpc : log.rpcs) {
    SCOPED_TRACE("XID " + std::to_string(rpc.xid));
    const auto found = meant.find(rpc.xid);
    if (found == meant.end()) {
      ADD_FAILURE() << "an XID that nobody has used";
      continue;
    }
    if (rpc.call) expect_never_silently_wrong(rpc.call->message, found->second.call);
    if (rpc.reply) expect_never_silently_wrong(rpc.reply->message, found->second.reply);
    const bool has_chunk = rpc.reply && !rpc.reply->chunks.empty();
    if (has_chunk) expect_never_silently_wrong(rpc.reply->chunks[0], found->second.chunk);
    if (!rpc.call || !rpc.reply) continue;
    const bool chunk_fits = has_chunk ? rpc.reply->chunks[0].whole() : found->second.chunk.empty();
    if (rpc.call->message.whole() && rpc.reply->message.whole() && chunk_fits) ++whole;
  }
  return whole;
}

struct WholeMessages : testing::TestWithParam<Way> {
  static Made make(std::size_t chunks, std::size_t length, std::uint32_t first = 1'000) {
    return GetParam().make(chunks, length, first);
  }
};

INSTANTIATE_TEST_SUITE_P(, WholeMessages, testing::ValuesIn(ways),
                         [](const auto& test_case) { return test_case.param.name; });

TEST_P(WholeMessages, OfEveryLengthAndNumberOfChunks) {
  for (std::size_t chunks = 1; chunks <= 3; ++chunks) {
    for (const std::size_t length : {1, 2, 3, 4, 5, 6, 7, 8, 9, 1'001, 1'002, 1'003, 1'004}) {
      SCOPED_TRACE(testing::Message() << chunks << " chunks of " << length);
      const Made made = make(chunks, length);
      const RpcLog log = followed(made.capture);
      EXPECT_EQ(whole_ones(log, made.meant), 5U);
      EXPECT_TRUE(log.findings.empty()) << log.all();
    }
  }
}

TEST_P(WholeMessages, WithNumbersThatWrapAnywhere) {
  const bool is_roce = GetParam().name == std::string("Roce");
  const std::uint32_t step = is_roce ? 1 : 61;
  const std::uint32_t most = is_roce ? 40 : 9'000;
  for (std::uint32_t back = 1; back < most; back += step) {
    const Made made = make(3, 601, 0U - back);
    EXPECT_EQ(whole_ones(followed(made.capture), made.meant), 5U) << back;
  }
}

TEST_P(WholeMessages, WithEachPacketLost) {
  for (std::size_t chunks = 1; chunks <= 3; ++chunks) {
    const Made made = make(chunks, 601);
    std::size_t whole = 0;
    for (std::size_t lost = 0; lost < made.capture.size(); ++lost) {
      SCOPED_TRACE(testing::Message() << chunks << " chunks, without packet " << lost);
      MadeCapture less = made.capture;
      less.erase(less.begin() + static_cast<std::ptrdiff_t>(lost));
      whole += whole_ones(followed(less), made.meant);
    }
    EXPECT_GE(whole, 3 * made.capture.size()) << "each costs two of five at most, on average";
  }
}

TEST_P(WholeMessages, WithEachPacketTwice) {
  const Made made = make(3, 601);
  for (std::size_t twice = 0; twice < made.capture.size(); ++twice) {
    MadeCapture more = made.capture;
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(twice), made.capture[twice]);
    const RpcLog log = followed(more);
    EXPECT_EQ(whole_ones(log, made.meant), 5U) << twice;
    EXPECT_TRUE(log.findings.empty()) << twice << ' ' << log.all();
  }
}

// Each packet moves by less than `window` places.
MadeCapture shuffled(const MadeCapture& capture, std::size_t window, Random& random) {
  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (std::size_t i = 0; i < capture.size(); ++i) order.emplace_back(i + random.below(window), i);
  std::ranges::stable_sort(order, {}, [](const auto& place) { return place.first; });
  MadeCapture out;
  for (const auto& [place, index] : order) out.push_back(capture[index]);
  return out;
}

// The last byte of the IPv4 address.
std::byte sender_of(const MadePacket& packet) {
  return packet.bytes[14 + 12 + 3];
}

// As above, but nothing passes what the other side has sent: neither an answer its request, nor a
// request what its sender had waited for.
MadeCapture shuffled_apart(const MadeCapture& capture, std::size_t window, Random& random) {
  MadeCapture out;
  for (auto at = capture.begin(); at != capture.end();) {
    const auto end = std::find_if(
        at, capture.end(), [&](const auto& next) { return sender_of(next) != sender_of(*at); });
    const MadeCapture run = shuffled({at, end}, window, random);
    out.insert(out.end(), run.begin(), run.end());
    at = end;
  }
  return out;
}

TEST_P(WholeMessages, ShuffledWithinAWindow) {
  const Made made = make(3, 601);
  for (const std::uint64_t seed : weft::test::seeds(60)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    Random random(seed);
    const std::size_t window = 2 + seed % 7;
    const RpcLog log = followed(shuffled_apart(made.capture, window, random));
    EXPECT_EQ(whole_ones(log, made.meant), 5U);
    EXPECT_TRUE(log.findings.empty()) << log.all();
    (void)whole_ones(followed(shuffled(made.capture, window, random)), made.meant);
  }
}

TEST_P(WholeMessages, WithPacketsLostAndDoubledAndShuffled) {
  for (const std::uint64_t seed : weft::test::seeds(150)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    Random random(seed);
    const Made made = make(1 + seed % 3, 500 + seed % 211);
    MadeCapture damaged;
    for (const MadePacket& packet : made.capture) {
      if (random.chance(12)) continue;
      damaged.push_back(packet);
      if (random.chance(12)) damaged.push_back(packet);
      if (random.chance(40)) damaged.back().bytes.resize(random.below(packet.bytes.size()));
    }
    const std::size_t window = 1 + random.below(8);
    (void)whole_ones(followed(shuffled(damaged, window, random)), made.meant);
  }
}

}  // namespace
}  // namespace weft::capture::test
