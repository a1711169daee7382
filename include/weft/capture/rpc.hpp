// One RPC over RDMA: a call, its reply, and their decoded content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/capture/assembled.hpp"
#include "weft/capture/chunk_lists.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/nfs.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"
#include "weft/wire/values.hpp"

namespace weft::capture {

// The call or the reply of an RPC.
struct RpcMessage {
  Stamp first;  // first part of the Send that carried the header
  Stamp last;
  std::uint32_t credits = 0;  // requested (call) or granted (reply)
  wire::RpcRdmaProcedure procedure = wire::RpcRdmaProcedure::msg;
  ChunkLists lists;
  // The XDR stream, from the RPC header on. A call's stream is complete, read chunks included. A
  // reply's stream holds what came inline or in the reply chunk, without `chunks`; `whole` is the
  // stream with the chunks in their places, if the places are known (NFS).
  Assembled message;
  std::vector<Assembled> chunks;
  std::optional<Assembled> whole;

  // Returns whether no byte of the message is missing: neither in its stream nor, where their
  // places in it are unknown, in its chunks.
  [[nodiscard]] WEFT_API bool complete() const;
};

enum class GssProtection : std::uint8_t { none, integrity, privacy };

struct Rpc {
  ConnectionId connection = 0;
  Side caller = Side::a;
  std::uint32_t xid = 0;
  std::optional<RpcMessage> call;   // absent if the capture began after it
  std::optional<RpcMessage> reply;  // absent if it was not captured
  std::uint32_t retransmissions = 0;
  std::int64_t latency_ns = 0;  // from the first call to the reply, if both were captured
  // Of latency_ns: from the first to the last packet that transferred its chunks.
  std::int64_t transfer_ns = 0;
  std::int64_t transfer_from_ns = 0;  // the time of that first packet, if transfer_ns is not 0
  // Before the call: how long the caller at most waited for a credit, because it had used all.
  std::int64_t credits_ns = 0;
  // Before the call: how long the caller at most waited for a free slot of its session (NFS 4.1 and
  // later), without the time in which it waited for a credit too.
  std::int64_t slots_ns = 0;
  // Before the call: since the previous reply, if no other call was without a reply meanwhile.
  std::int64_t idle_ns = 0;

  bool has_header = false;  // the call's header was decoded: the fields up to `gss` are valid
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  wire::AuthFlavor flavor = wire::AuthFlavor::none;
  std::uint32_t uid = 0;  // of AUTH_SYS
  std::uint32_t gid = 0;
  GssProtection gss = GssProtection::none;  // with privacy nothing after the headers can be decoded

  std::optional<wire::RpcStatus> status;    // from the reply's header
  std::optional<wire::RpcRdmaError> error;  // set if the reply was RDMA_ERROR
  std::optional<NfsExchange> nfs;
};

// Returns "NFS" or "MOUNT"; the number if the program is unknown.
[[nodiscard]] WEFT_API std::string program_name(std::uint32_t program);
// Returns "GETACL" or "MNT": the procedure of a program that is not decoded; empty if it is
// unknown. The text is in static storage.
[[nodiscard]] WEFT_API std::string_view procedure_name(const Rpc& rpc);
// Returns "NFSv3 READ", "NFSACLv3 GETACL", "NFSv4.2 SEQUENCE PUTFH READ" or "program 400000 version
// 3 procedure 1".
[[nodiscard]] WEFT_API std::string describe(const Rpc& rpc);

class RpcSink : public FindingSink {
 public:
  // Receives each RPC once: with its reply, or when it is certain that no reply was captured. The
  // order is that of the replies, but an RPC whose Reads the capture holds late comes when they
  // are complete. `rpc` is valid during the call only; a copy owns its bytes.
  virtual void on_rpc(const Rpc& rpc) = 0;
};

}  // namespace weft::capture
