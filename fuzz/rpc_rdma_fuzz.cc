// RPC-over-RDMA headers, and the RPC headers behind them.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "wire/rpc.h"
#include "wire/rpc_rdma.h"

namespace weft::fuzz {
namespace {

// The lists of a view, copied into the shape that RpcRdmaHeader emits.
struct Lists {
  explicit Lists(const wire::RpcRdmaView& view) {
    for (std::size_t i = 0; i < view.reads().size(); ++i) reads.push_back(view.reads()[i]);
    for (const wire::ChunkView chunk : view.writes()) chunks.push_back(copy(chunk));
    for (const auto& chunk : chunks) writes.emplace_back(chunk);
    if (view.reply()) reply = copy(*view.reply());
  }
  static std::vector<wire::RdmaSegment> copy(const wire::ChunkView& chunk) {
    std::vector<wire::RdmaSegment> segments;
    for (std::size_t i = 0; i < chunk.size(); ++i) segments.push_back(chunk[i]);
    return segments;
  }

  std::vector<wire::ReadSegment> reads;
  std::vector<std::vector<wire::RdmaSegment>> chunks;
  std::vector<std::span<const wire::RdmaSegment>> writes;
  std::vector<wire::RdmaSegment> reply;
};

void check_rdma(Bytes bytes) {
  const auto view = wire::RpcRdmaView::check(bytes);
  if (!view) return;
  require(view->size() + view->body().size() == bytes.size());
  const Lists lists(*view);
  require(lists.writes.size() == view->writes().size());
  wire::RpcRdmaHeader header{.xid = view->xid(),
                             .credits = view->credits(),
                             .procedure = view->procedure(),
                             .align = view->align(),
                             .threshold = view->threshold(),
                             .error = view->error(),
                             .reads = lists.reads,
                             .writes = lists.writes,
                             .reply = {}};
  if (view->reply()) header.reply = lists.reply;
  require(header.size() == view->size());
  std::vector<std::byte> again(header.size());
  header.emit(again);
  require(std::ranges::equal(again, bytes.first(view->size())));
}

template <typename Header>
void check_rpc(Bytes bytes) {
  const auto header = Header::parse(bytes);
  if (!header) return;
  require(header->size() <= bytes.size());
  std::vector<std::byte> again(header->size());
  header->emit(again);
  // The padding of the input may have any value; the bytes that were emitted once must not change.
  const auto second = Header::parse(again);
  require(second.ok());
  require(second->size() == header->size());
  std::vector<std::byte> third(second->size());
  second->emit(third);
  require(third == again);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const auto bytes = fuzz::input_bytes(data, size);
  fuzz::check_rdma(bytes);
  fuzz::check_rpc<wire::RpcCall>(bytes);
  fuzz::check_rpc<wire::RpcReply>(bytes);
  (void)wire::AuthSys::parse(bytes);
  (void)wire::GssCredential::parse(bytes);
  return 0;
}
