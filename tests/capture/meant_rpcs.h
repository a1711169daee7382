// RPCs of every shape, with what each side meant, as messages of both transports.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "capture/rpc_builder.h"
#include "capture/rpc_log.h"
#include "support/random.h"

namespace weft::capture::test {

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
  static constexpr Side client = Side::a;
  static constexpr Side server = Side::b;
  static constexpr std::uint32_t program = 0x20000001;

 public:
  // XIDs and handles begin after `base`, so that those of several rounds differ.
  Rpcs(std::size_t chunks, std::size_t length, std::uint32_t base = 0)
      : chunks_(chunks), length_(length), base_(base) {}

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
    tell(talk, {.xid = base_ + 1}, call(base_ + 1), {.xid = base_ + 1}, rpc_reply(base_ + 1),
         [] {});
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
    RdmaHeader header{.xid = base_ + 2};
    Buffer whole = call(base_ + 2);
    Buffer inline_part = whole;
    std::vector<Buffer> contents;
    for (std::size_t i = 0; i < chunks_; ++i) {
      contents.push_back(weft::test::pattern(length_ + i, i + 1));
      const auto size = static_cast<std::uint32_t>(contents.back().size());
      const Buffer tail = Xdr().u32(0xABCD0000 + i);
      whole = joined(whole, Xdr().u32(size));
      const auto position = static_cast<std::uint32_t>(whole.size());
      const auto handle = static_cast<std::uint32_t>(base_ + 10 * i + 1);
      header.lists.reads.push_back({position, {handle, size / 2, 0x1000 + i * 0x10000}});
      header.lists.reads.push_back({position, {handle + 1, size - size / 2, 0x8000 + i * 0x10000}});
      whole = joined(joined(whole, Xdr().fixed(contents.back())), tail);
      inline_part = joined(joined(inline_part, Xdr().u32(size)), tail);
    }
    std::erase_if(header.lists.reads, [](const auto& read) { return read.target.length == 0; });
    meant[base_ + 2].call = whole;
    tell(talk, header, inline_part, {.xid = base_ + 2}, rpc_reply(base_ + 2), [&] {
      for (const auto& read : header.lists.reads) {
        const Bytes content = contents[(read.target.handle - base_) / 10];
        const std::size_t half = content.size() / 2;
        const bool second = (read.target.handle - base_) % 10 == 2;
        talk.read(server, read.target.handle, read.target.offset,
                  second ? content.subspan(half) : content.first(half));
      }
    });
  }

  void long_call(auto& talk) {
    const Buffer whole = call(base_ + 3, Xdr().opaque(weft::test::pattern(700 + length_, 40)));
    const auto size = static_cast<std::uint32_t>(whole.size());
    RdmaHeader header{.xid = base_ + 3, .procedure = wire::RpcRdmaProcedure::nomsg};
    header.lists.reads = {{0, {base_ + 30, 500, 0x1000}}, {0, {base_ + 31, size - 500, 0x2000}}};
    tell(talk, header, {}, {.xid = base_ + 3}, rpc_reply(base_ + 3), [&] {
      talk.read(server, base_ + 30, 0x1000, Bytes(whole).first(500));
      talk.read(server, base_ + 31, 0x2000, Bytes(whole).subspan(500));
    });
  }

  // Of two segments, the first of which is written by two RDMA Writes; and a reply chunk that is
  // not used.
  void write_chunk(auto& talk) {
    const Buffer content = weft::test::pattern(600 + length_, 50);
    const auto rest = static_cast<std::uint32_t>(content.size()) - 600;
    RdmaHeader asks{.xid = base_ + 4};
    asks.lists.writes = {{{base_ + 40, 600, 0x1000}, {base_ + 41, 2'000, 0x2000}}};
    asks.lists.reply = Chunk{{base_ + 42, 4'000, 0x3000}};
    RdmaHeader tells{.xid = base_ + 4};
    tells.lists.writes = {{{base_ + 40, 600, 0x1000}, {base_ + 41, rest, 0x2000}}};
    tells.lists.reply = Chunk{{base_ + 42, 0, 0x3000}};
    meant[base_ + 4].chunk = content;
    tell(talk, asks, call(base_ + 4), tells, rpc_reply(base_ + 4, Xdr().u32(content.size())), [&] {
      talk.write(server, base_ + 40, 0x1000, Bytes(content).first(300));
      talk.write(server, base_ + 40, 0x1000 + 300, Bytes(content).subspan(300, 300));
      talk.write(server, base_ + 41, 0x2000, Bytes(content).subspan(600));
    });
  }

  void long_reply(auto& talk) {
    const Buffer reply = rpc_reply(base_ + 5, Xdr().opaque(weft::test::pattern(900 + length_, 60)));
    const auto size = static_cast<std::uint32_t>(reply.size());
    RdmaHeader asks{.xid = base_ + 5};
    asks.lists.reply = Chunk{{base_ + 50, 512, 0x1000}, {base_ + 51, 4'000, 0x2000}};
    RdmaHeader tells{.xid = base_ + 5, .procedure = wire::RpcRdmaProcedure::nomsg};
    tells.lists.reply = Chunk{{base_ + 50, 512, 0x1000}, {base_ + 51, size - 512, 0x2000}};
    meant[base_ + 5].reply = reply;
    tell(talk, asks, call(base_ + 5), tells, {}, [&] {
      talk.write(server, base_ + 50, 0x1000, Bytes(reply).first(512));
      talk.write(server, base_ + 51, 0x2000, Bytes(reply).subspan(512));
    });
  }

  std::size_t chunks_;
  std::size_t length_;
  std::uint32_t base_;
};

// How many of the RPCs are whole in all that was meant.
inline std::size_t whole_ones(const RpcLog& log, const MeantByXid& meant) {
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

}  // namespace weft::capture::test
