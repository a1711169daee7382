#include "device/faults/failing_request.h"

#include <algorithm>

namespace weft::device {
namespace {

// No region and no window has this key: theirs are at least 256. It is not 0, so that the side that
// refuses it can name it.
constexpr std::uint32_t invalid_key = 0xFF;

// The statuses that a device reports because of the responder's answer.
bool peer_reports(ibv_wc_status status) {
  return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
         status == IBV_WC_REM_OP_ERR || status == IBV_WC_REM_ABORT_ERR ||
         status == IBV_WC_REM_INV_RD_REQ_ERR;
}

// Copies the list, and makes sure that it contains a byte, because the keys of empty pieces are not
// looked up.
int copy_list(const ibv_sge* from, int count, std::array<ibv_sge, limits::max_slices>& list) {
  std::copy_n(from, count, list.begin());
  if (length_of(from, count) > 0) return count;
  list[0] = {.addr = 0, .length = 1, .lkey = invalid_key};
  return 1;
}

void spoil(std::array<ibv_sge, limits::max_slices>& list, int count) {
  for (int i = 0; i < count; ++i) list[static_cast<std::size_t>(i)].lkey = invalid_key;
}

}  // namespace

std::optional<faults::Point> point_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return faults::Point::send;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return faults::Point::write;
    case IBV_WR_RDMA_READ:
      return faults::Point::read;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_WRITE:
      return faults::Point::atomic;
    default:
      return std::nullopt;
  }
}

std::uint64_t length_of(const ibv_sge* list, int count) {
  std::uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += list[i].length;
  return bytes;
}

// The request is spoiled so that it fails in the device's normal way. A status that the peer
// reports comes from a wrong remote key, so that the peer really refuses the request. All others
// fail by their local keys, and so do Sends, which have no remote key, and requests of no bytes,
// whose remote key is not checked.
FailingSend::FailingSend(const ibv_send_wr& request, ibv_wc_status status) : request_(request) {
  request_.next = nullptr;
  const bool is_send = point_of(request.opcode) == faults::Point::send;
  const bool empty = length_of(request.sg_list, request.num_sge) == 0;  // its keys are not checked
  if (peer_reports(status) && !is_send && !empty) {
    const bool is_atomic = request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                           request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    // The key's place in the union wr depends on the opcode.
    (is_atomic ? request_.wr.atomic.rkey : request_.wr.rdma.rkey) = invalid_key;
    return;
  }
  request_.num_sge = copy_list(request.sg_list, request.num_sge, list_);
  request_.sg_list = list_.data();
  request_.send_flags &= ~static_cast<unsigned>(IBV_SEND_INLINE);  // which has no keys
  spoil(list_, request_.num_sge);
}

FailingReceive::FailingReceive(const ibv_recv_wr& request) : request_(request) {
  request_.next = nullptr;
  request_.num_sge = copy_list(request.sg_list, request.num_sge, list_);
  request_.sg_list = list_.data();
  spoil(list_, request_.num_sge);
}

}  // namespace weft::device
