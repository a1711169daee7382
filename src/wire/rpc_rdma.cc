// RPC-over-RDMA version 1: RFC 8166. Lists are linked lists of XDR: a 1 before each element, a 0 at
// the end.
#include "wire/rpc_rdma.h"

#include "wire/field.h"
#include "wire/xdr.h"

namespace weft::wire {

namespace field::rdma_segment {
constexpr Field32 handle{0};
constexpr Field32 length{handle.end()};
constexpr Field64 offset{length.end()};
static_assert(offset.end() == RdmaSegment::header_bytes);
}  // namespace field::rdma_segment

namespace field::read_segment {
constexpr Field32 position{0};
constexpr FieldBytes<RdmaSegment::header_bytes> target{position.end()};
static_assert(target.end() == ReadSegment::header_bytes);
}  // namespace field::read_segment

Result<RdmaSegment, WireError> RdmaSegment::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::rdma_segment;
  return RdmaSegment{.handle = at::handle.load(bytes.data()),
                     .length = at::length.load(bytes.data()),
                     .offset = at::offset.load(bytes.data())};
}

void RdmaSegment::emit(MutableBytes out) const {
  namespace at = field::rdma_segment;
  at::handle.store(out.data(), handle);
  at::length.store(out.data(), length);
  at::offset.store(out.data(), offset);
}

Result<ReadSegment, WireError> ReadSegment::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::read_segment;
  return ReadSegment{.position = at::position.load(bytes.data()),
                     .target = *RdmaSegment::parse(bytes.subspan(at::target.at))};
}

void ReadSegment::emit(MutableBytes out) const {
  namespace at = field::read_segment;
  at::position.store(out.data(), position);
  target.emit(out.subspan(at::target.at));
}

// The names of RFC 8166. It keeps the numbers of RDMA_MSGP and RDMA_DONE from RFC 5666, but no
// longer lets implementations use them.
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

constexpr std::size_t fixed_bytes = 4 * xdr_unit_bytes;  // xid, version, credits, procedure
constexpr std::size_t msgp_bytes = 2 * xdr_unit_bytes;   // align, threshold
constexpr std::size_t list_end_bytes = xdr_unit_bytes;
constexpr std::size_t error_bytes = xdr_unit_bytes;
// Of the two errors only ERR_VERS carries numbers: the lowest and the highest supported version.
constexpr std::size_t version_error_bytes = error_bytes + 2 * xdr_unit_bytes;  // and the range

bool has_lists(RpcRdmaProcedure procedure) {
  return procedure == RpcRdmaProcedure::msg || procedure == RpcRdmaProcedure::nomsg ||
         procedure == RpcRdmaProcedure::msgp;
}

// A chunk of a write list, and the reply chunk: a mark, the number of segments, the segments.
std::size_t chunk_bytes(std::span<const RdmaSegment> chunk) {
  return list_mark_bytes + xdr_unit_bytes + chunk.size() * RdmaSegment::header_bytes;
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

// The order of the three lists is fixed: read list, write list, reply chunk (RFC 8166 §4).
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
    return fixed_bytes +
           (error.code == RpcRdmaErrorCode::version ? version_error_bytes : error_bytes);
  }
  // The read list and the write list always have an end. The reply chunk has its mark or a zero.
  std::size_t bytes = fixed_bytes + 2 * list_end_bytes;
  if (procedure == RpcRdmaProcedure::msgp) bytes += msgp_bytes;
  bytes += reads.size() * (list_mark_bytes + ReadSegment::header_bytes);
  for (const auto& chunk : writes) bytes += chunk_bytes(chunk);
  return bytes + (reply ? chunk_bytes(*reply) : list_end_bytes);
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

// Walks the lists once, to check that they are whole; the views of the result then walk them again
// without checks.
struct RpcRdmaParser {
  Bytes whole;
  XdrReader in{whole};
  RpcRdmaView view{};

  // The bytes from `begin` to the position of the reader, without the last `end_bytes`.
  [[nodiscard]] Bytes since(std::size_t begin, std::size_t end_bytes) const {
    return whole.subspan(begin, in.position() - begin - end_bytes);
  }

  void read_list() {
    const std::size_t begin = in.position();
    // A reader that has failed returns 0, so that the loop ends for any input.
    while (in.boolean()) in.fixed(ReadSegment::header_bytes);
    if (in.ok()) view.reads_ = ReadListView(since(begin, list_end_bytes));
  }

  void segments() {
    constexpr std::size_t each = RdmaSegment::header_bytes;
    // count() has compared the number with the bytes that are left, so the product is bounded.
    in.fixed(std::size_t{in.count(each)} * each);
  }

  void write_list() {
    const std::size_t begin = in.position();
    std::size_t count = 0;
    while (in.boolean()) {
      segments();
      ++count;
    }
    if (in.ok()) view.writes_ = WriteListView(since(begin, list_end_bytes), count);
  }

  // There is one reply chunk at most, so it has a mark in front of it and no end behind it.
  void reply_chunk() {
    if (!in.boolean()) return;
    const std::size_t begin = in.position() + xdr_unit_bytes;  // behind the count
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

  // Errors stay in the reader, and check() looks at them once, at the end.
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
    // After a failure these values mean nothing, and check() returns the error in place of the
    // view.
    view.size_ = in.position();
    view.body_ = in.rest();
  }
};

// The view refers to `bytes` and owns nothing, so it is valid as long as they are.
Result<RpcRdmaView, WireError> RpcRdmaView::check(Bytes bytes) {
  RpcRdmaParser parser{bytes};
  parser.header();
  if (!parser.in.ok()) return parser.in.error();
  return parser.view;
}

}  // namespace weft::wire
