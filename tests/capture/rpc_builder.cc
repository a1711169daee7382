#include "capture/rpc_builder.h"

#include <algorithm>

#include "base/bytes.h"
#include "wire/rpc.h"
#include "wire/rpc_rdma.h"
#include "wire/xdr.h"

namespace weft::capture::test {

Xdr& Xdr::u32(std::uint64_t value) {
  bytes_.resize(bytes_.size() + 4);
  store_be(&bytes_[bytes_.size() - 4], static_cast<std::uint32_t>(value));
  return *this;
}

Xdr& Xdr::u64(std::uint64_t value) {
  return u32(value >> 32).u32(value & 0xFFFFFFFF);
}

Xdr& Xdr::raw(Bytes bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return *this;
}

Xdr& Xdr::fixed(Bytes bytes) {
  raw(bytes);
  bytes_.resize(wire::xdr_padded(bytes_.size()));
  return *this;
}

Xdr& Xdr::opaque(Bytes bytes) {
  return u32(bytes.size()).fixed(bytes);
}

Xdr& Xdr::zeros(std::size_t bytes) {
  bytes_.resize(bytes_.size() + bytes);
  return *this;
}

Buffer joined(const Buffer& a, const Buffer& b) {
  Buffer both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

Buffer rdma_message(const RdmaHeader& header, const Buffer& body) {
  std::vector<std::span<const wire::RdmaSegment>> writes(header.lists.writes.begin(),
                                                         header.lists.writes.end());
  wire::RpcRdmaHeader emitted{.xid = header.xid,
                              .credits = header.credits,
                              .procedure = header.procedure,
                              .error = header.error,
                              .reads = header.lists.reads,
                              .writes = writes};
  if (header.lists.reply) emitted.reply = *header.lists.reply;
  Buffer bytes(emitted.size());
  emitted.emit(bytes);
  return joined(bytes, body);
}

Buffer rpc_call(std::uint32_t xid, std::uint32_t program, std::uint32_t version,
                std::uint32_t procedure, const Buffer& arguments) {
  return Xdr()
      .u32(xid)
      .u32(0)
      .u32(wire::rpc_version)
      .u32(program)
      .u32(version)
      .u32(procedure)
      .zeros(16)
      .raw(arguments);
}

Buffer rpc_reply(std::uint32_t xid, const Buffer& results) {
  return Xdr().u32(xid).u32(1).u32(0).zeros(8).u32(0).raw(results);
}

Buffer reduced(const Buffer& message, std::size_t begin, std::size_t size) {
  Buffer less = message;
  const auto from = less.begin() + static_cast<std::ptrdiff_t>(begin);
  less.erase(from, from + static_cast<std::ptrdiff_t>(wire::xdr_padded(size)));
  return less;
}

}  // namespace weft::capture::test
