// One RPC over RDMA: a call, the reply to it, and what both say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/capture/assembled.hpp"
#include "weft/capture/chunk_lists.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/nfs.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"
#include "weft/wire/values.hpp"

namespace weft::capture {

// One direction of an RPC.
struct RpcMessage {
  Stamp first;  // of the first part of the Send that carried the header
  Stamp last;
  std::uint32_t credits = 0;  // asked for or granted
  wire::RpcRdmaProcedure procedure = wire::RpcRdmaProcedure::msg;
  ChunkLists lists;
  // The XDR stream, from the RPC header on. Of a call it is whole, read chunks included. Of a reply
  // it is what came inline or in the reply chunk: `chunks` belong into it, and `whole` has them
  // there where the places are known (NFS).
  Assembled message;
  std::vector<Assembled> chunks;
  std::optional<Assembled> whole;
};

enum class GssProtection : std::uint8_t { none, integrity, privacy };

struct Rpc {
  ConnectionId connection = 0;
  Side caller = Side::a;
  std::uint32_t xid = 0;
  std::optional<RpcMessage> call;   // absent where the capture began later
  std::optional<RpcMessage> reply;  // absent where it was never seen
  std::uint32_t retransmissions = 0;
  std::int64_t latency_ns = 0;  // from the first call to the reply, where both are there

  bool has_header = false;  // of the call: what follows up to `gss` is known
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  wire::AuthFlavor flavor = wire::AuthFlavor::none;
  std::uint32_t uid = 0;  // of AUTH_SYS
  std::uint32_t gid = 0;
  GssProtection gss = GssProtection::none;  // with privacy nothing behind the headers is decoded

  std::optional<wire::RpcStatus> status;    // of the reply's header
  std::optional<wire::RpcRdmaError> error;  // the reply was RDMA_ERROR
  std::optional<NfsExchange> nfs;
};

// "NFS", "MOUNT"; the number where it is not known.
[[nodiscard]] WEFT_API std::string program_name(std::uint32_t program);
// "NFSv3 READ", "NFSv4.2 SEQUENCE PUTFH READ", "program 100227 version 3 procedure 1".
[[nodiscard]] WEFT_API std::string describe(const Rpc& rpc);

class RpcSink : public FindingSink {
 public:
  // Once for each RPC: with its reply, or when it is clear that none will be seen. The order is
  // that of the replies. Valid during the call only; a copy owns its bytes.
  virtual void on_rpc(const Rpc& rpc) = 0;
};

}  // namespace weft::capture
