#include "wire/rpc_rdma.h"

#include "wire/xdr.h"

namespace weft::wire {

Result<RdmaSegment, WireError> RdmaSegment::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  return RdmaSegment{.handle = load_be<std::uint32_t>(&bytes[0]),
                     .length = load_be<std::uint32_t>(&bytes[4]),
                     .offset = load_be<std::uint64_t>(&bytes[8])};
}

void RdmaSegment::emit(MutableBytes out) const {
  store_be(&out[0], handle);
  store_be(&out[4], length);
  store_be(&out[8], offset);
}

Result<ReadSegment, WireError> ReadSegment::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  return ReadSegment{.position = load_be<std::uint32_t>(&bytes[0]),
                     .target = *RdmaSegment::parse(bytes.subspan(4))};
}

void ReadSegment::emit(MutableBytes out) const {
  store_be(&out[0], position);
  target.emit(out.subspan(4));
}

const char* describe(RpcRdmaProcedure procedure) {
  switch (procedure) {
    case RpcRdmaProcedure::msg:
      return "RDMA_MSG";
    case RpcRdmaProcedure::nomsg:
      return "RDMA_NOMSG";
    case RpcRdmaProcedure::msgp:
      return "RDMA_MSGP";
    case RpcRdmaProcedure::done:
      return "RDMA_DONE";
    case RpcRdmaProcedure::error:
      return "RDMA_ERROR";
  }
  return "unknown procedure";
}

// --- Emitting ------------------------------------------------------------------------------------

namespace {

constexpr std::size_t fixed_bytes = 16;  // xid, version, credits, procedure
constexpr std::size_t list_end_bytes = 4;

bool has_lists(RpcRdmaProcedure procedure) {
  return procedure == RpcRdmaProcedure::msg || procedure == RpcRdmaProcedure::nomsg ||
         procedure == RpcRdmaProcedure::msgp;
}

void emit_chunk(XdrWriter& out, std::span<const RdmaSegment> chunk) {
  out.u32(1);
  out.u32(static_cast<std::uint32_t>(chunk.size()));
  for (const RdmaSegment& segment : chunk) {
    out.u32(segment.handle);
    out.u32(segment.length);
    out.u64(segment.offset);
  }
}

void emit_lists(XdrWriter& out, const RpcRdmaHeader& header) {
  for (const ReadSegment& segment : header.reads) {
    out.u32(1);
    out.u32(segment.position);
    out.u32(segment.target.handle);
    out.u32(segment.target.length);
    out.u64(segment.target.offset);
  }
  out.u32(0);
  for (const auto& chunk : header.writes) emit_chunk(out, chunk);
  out.u32(0);
  if (header.reply) {
    emit_chunk(out, *header.reply);
  } else {
    out.u32(0);
  }
}

}  // namespace

std::size_t RpcRdmaHeader::size() const {
  if (procedure == RpcRdmaProcedure::done) return fixed_bytes;
  if (procedure == RpcRdmaProcedure::error) {
    return fixed_bytes + (error.code == RpcRdmaErrorCode::version ? 12 : 4);
  }
  std::size_t bytes = fixed_bytes + 2 * list_end_bytes;
  if (procedure == RpcRdmaProcedure::msgp) bytes += 8;
  bytes += reads.size() * (4 + ReadSegment::header_bytes);
  for (const auto& chunk : writes) bytes += 8 + chunk.size() * RdmaSegment::header_bytes;
  return bytes + (reply ? 8 + reply->size() * RdmaSegment::header_bytes : 4);
}

void RpcRdmaHeader::emit(MutableBytes buffer) const {
  XdrWriter out(buffer);
  out.u32(xid);
  out.u32(rpc_rdma_version);
  out.u32(credits);
  out.u32(static_cast<std::uint32_t>(procedure));
  if (procedure == RpcRdmaProcedure::msgp) {
    out.u32(align);
    out.u32(threshold);
  }
  if (has_lists(procedure)) emit_lists(out, *this);
  if (procedure != RpcRdmaProcedure::error) return;
  out.u32(static_cast<std::uint32_t>(error.code));
  if (error.code != RpcRdmaErrorCode::version) return;
  out.u32(error.version_low);
  out.u32(error.version_high);
}

// --- Parsing -------------------------------------------------------------------------------------

struct RpcRdmaParser {
  Bytes whole;
  XdrReader in{whole};
  RpcRdmaView view{};

  // From `begin` to where the reader stands, without the word that ends a list.
  [[nodiscard]] Bytes since(std::size_t begin, std::size_t end_bytes) const {
    return whole.subspan(begin, in.position() - begin - end_bytes);
  }

  void read_list() {
    const std::size_t begin = in.position();
    while (in.boolean()) in.fixed(ReadSegment::header_bytes);
    if (in.ok()) view.reads_ = ReadListView(since(begin, list_end_bytes));
  }

  void segments() { in.fixed(std::size_t{in.count(16)} * RdmaSegment::header_bytes); }

  void write_list() {
    const std::size_t begin = in.position();
    std::size_t count = 0;
    while (in.boolean()) {
      segments();
      ++count;
    }
    if (in.ok()) view.writes_ = WriteListView(since(begin, list_end_bytes), count);
  }

  void reply_chunk() {
    if (!in.boolean()) return;
    const std::size_t begin = in.position() + 4;
    segments();
    if (in.ok()) view.reply_ = ChunkView(since(begin, 0));
  }

  void error() {
    view.error_.code = static_cast<RpcRdmaErrorCode>(in.u32());
    if (view.error_.code == RpcRdmaErrorCode::version) {
      view.error_.version_low = in.u32();
      view.error_.version_high = in.u32();
    } else if (view.error_.code != RpcRdmaErrorCode::chunk) {
      in.fail(WireError::bad_value);
    }
  }

  void header() {
    view.xid_ = in.u32();
    if (in.u32() != rpc_rdma_version) in.fail(WireError::bad_version);
    view.credits_ = in.u32();
    view.procedure_ = static_cast<RpcRdmaProcedure>(in.u32());
    if (view.procedure_ > RpcRdmaProcedure::error) in.fail(WireError::bad_value);
    if (view.procedure_ == RpcRdmaProcedure::msgp) {
      view.align_ = in.u32();
      view.threshold_ = in.u32();
    }
    if (has_lists(view.procedure_)) {
      read_list();
      write_list();
      reply_chunk();
    }
    if (view.procedure_ == RpcRdmaProcedure::error) error();
    view.size_ = in.position();
    view.body_ = in.rest();
  }
};

Result<RpcRdmaView, WireError> RpcRdmaView::check(Bytes bytes) {
  RpcRdmaParser parser{bytes};
  parser.header();
  if (!parser.in.ok()) return parser.in.error();
  return parser.view;
}

}  // namespace weft::wire
