#include "device/trace/request_latencies.h"

#include <algorithm>

#include "device/trace/trace_file.h"

namespace weft::device {
namespace {

std::optional<LatencyKind> kind_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return LatencyKind::send;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return LatencyKind::write;
    case IBV_WR_RDMA_READ:
      return LatencyKind::read;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_WRITE:
      return LatencyKind::atomic;
    default:
      return std::nullopt;
  }
}

}  // namespace

void RequestLatencies::posted(ibv_wr_opcode opcode, std::uint64_t now_ns) {
  open_.push_back({now_ns, kind_of(opcode)});
}

void RequestLatencies::completed(std::uint64_t covered, bool success, std::uint64_t now_ns) {
  if (covered == 0) return;
  forget(covered - 1);
  if (open_.empty()) return;
  const Open done = open_.front();
  open_.pop_front();
  if (!success || !done.kind || done.posted_ns == 0) return;
  auto& histogram = histograms_[static_cast<std::size_t>(*done.kind)];
  if (!histogram) histogram = std::make_unique<live::LatencyHistogram>();
  histogram->add(now_ns > done.posted_ns ? now_ns - done.posted_ns : 0);
}

void RequestLatencies::waits_for_room(bool waits) {
  if (waits == (room_since_ns_ != 0)) return;
  const std::uint64_t now_ns = TraceFile::now_ns();
  if (!waits) room_wait_ns_ += now_ns - room_since_ns_;
  room_since_ns_ = waits ? now_ns : 0;
}

void RequestLatencies::forget(std::uint64_t requests) {
  const auto count = std::min<std::uint64_t>(requests, open_.size());
  open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace weft::device
