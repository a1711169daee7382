// RPC-over-RDMA messages written by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "capture/traffic_script.h"
#include "weft/capture/chunk_lists.hpp"
#include "wire/rpc.h"
#include "wire/rpc_rdma.h"
#include "wire/xdr.h"

namespace weft::capture::test {

// Grows an XDR stream.
class Xdr {
 public:
  Xdr& u32(std::uint64_t value);
  Xdr& u64(std::uint64_t value);
  Xdr& opaque(Bytes bytes);
  Xdr& text(std::string_view text) { return opaque(std::as_bytes(std::span(text))); }
  Xdr& fixed(Bytes bytes);  // with its padding
  Xdr& zeros(std::size_t bytes);
  Xdr& raw(Bytes bytes);
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] const Buffer& bytes() const { return bytes_; }
  operator const Buffer&() const { return bytes_; }

 private:
  Buffer bytes_;
};

struct RdmaHeader {
  std::uint32_t xid = 0;
  std::uint32_t credits = 32;
  wire::RpcRdmaProcedure procedure = wire::RpcRdmaProcedure::msg;
  ChunkLists lists{};
  wire::RpcRdmaError error{};
};

[[nodiscard]] Buffer rdma_message(const RdmaHeader& header, const Buffer& body = {});
[[nodiscard]] Buffer joined(const Buffer& a, const Buffer& b);

// RPC messages, headers included, with AUTH_NONE.
[[nodiscard]] Buffer rpc_call(std::uint32_t xid, std::uint32_t program, std::uint32_t version,
                              std::uint32_t procedure, const Buffer& arguments = {});
[[nodiscard]] Buffer rpc_reply(std::uint32_t xid, const Buffer& results = {});

// Without the bytes of [begin, end) and the padding behind them.
[[nodiscard]] Buffer reduced(const Buffer& message, std::size_t begin, std::size_t size);

}  // namespace weft::capture::test
