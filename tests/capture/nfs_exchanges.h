// NFS over RPC-over-RDMA, on any transport: a WRITE by a read chunk of two segments, and a READ
// into a write chunk of two segments.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "capture/made_capture.h"
#include "capture/rpc_builder.h"
#include "capture/rpc_log.h"
#include "support/random.h"
#include "weft/capture/nfs.hpp"

namespace weft::capture::test {

class NfsExchanges {
 public:
  static constexpr Side client = Side::a;
  static constexpr Side server = Side::b;

  // `talk` has send(side, bytes), write(side, key, address, bytes), and read(side, key, address,
  // bytes) with its answer.
  void run(auto& talk) const {
    talk.send(client, Bytes(rdma_message({.xid = 1}, rpc_call(1, nfs_program, 3, 0))));
    talk.send(server, Bytes(rdma_message({.xid = 1}, rpc_reply(1))));
    run_write(talk);
    run_read(talk);
  }

  [[nodiscard]] Buffer write_head() const {
    return rpc_call(2, nfs_program, 3, 7,
                    Xdr().opaque(handle).u64(512).u32(written_bytes).u32(2).u32(written_bytes));
  }
  // The chunk is the last in the call, and rounded up.
  [[nodiscard]] Buffer write_call() const {
    Buffer call = write_head();
    call.insert(call.end(), written.begin(), written.end());
    call.resize(wire::xdr_padded(call.size()));
    return call;
  }

  // Checks that messages that are reported whole are right. Returns how many of WRITE and READ are.
  [[nodiscard]] std::size_t whole_ones(const RpcLog& log) const {
    std::size_t whole = 0;
    for (const Rpc& rpc : log.rpcs) {
      if (!rpc.nfs || rpc.nfs->operations.empty() || rpc.xid == 1) continue;
      const NfsOperation& operation = rpc.nfs->operations[0];
      const Buffer& content = operation.name == "WRITE" ? written : read;
      expect_right(operation, content);
      if (rpc.reply && operation.bulk == Assembled(content)) ++whole;
    }
    return whole;
  }

 private:
  static constexpr std::size_t written_bytes = 1'001;
  static constexpr std::size_t read_bytes = 1'503;

  void run_write(auto& talk) const {
    const Buffer head = write_head();
    const auto position = static_cast<std::uint32_t>(head.size());
    RdmaHeader gives{.xid = 2};
    gives.lists.reads = {{position, {1, 600, 0x1000}}, {position, {2, 401, 0x9000}}};
    talk.send(client, Bytes(rdma_message(gives, head)));
    talk.read(server, 1, 0x1000, Bytes(written).first(600));
    talk.read(server, 2, 0x9000, Bytes(written).subspan(600));
    const Xdr result = Xdr().u32(0).u32(0).u32(0).u32(written_bytes).u32(2).u64(7);
    talk.send(server, Bytes(rdma_message({.xid = 2}, rpc_reply(2, result))));
  }

  void run_read(auto& talk) const {
    RdmaHeader asks{.xid = 3};
    asks.lists.writes = {{{3, 700, 0x3000}, {4, 1'000, 0x4000}}};
    RdmaHeader tells{.xid = 3};
    tells.lists.writes = {{{3, 700, 0x3000}, {4, 803, 0x4000}}};
    const Xdr arguments = Xdr().opaque(handle).u64(0).u32(2'000);
    talk.send(client, Bytes(rdma_message(asks, rpc_call(3, nfs_program, 3, 6, arguments))));
    talk.write(server, 3, 0x3000, Bytes(read).first(700));
    talk.write(server, 4, 0x4000, Bytes(read).subspan(700));
    const Xdr result = Xdr().u32(0).u32(0).u32(read_bytes).u32(1).u32(read_bytes);
    talk.send(server, Bytes(rdma_message(tells, rpc_reply(3, result))));
  }

  static void expect_right(const NfsOperation& operation, const Buffer& content) {
    const Bytes bytes = operation.bulk.bytes();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (operation.bulk.whole(i, i + 1)) {
        ASSERT_EQ(bytes[i], content[i]) << operation.name << ' ' << i;
      }
    }
  }

  Buffer handle = weft::test::pattern(28, 50);
  Buffer written = weft::test::pattern(written_bytes, 1);
  Buffer read = weft::test::pattern(read_bytes, 2);
};

}  // namespace weft::capture::test
