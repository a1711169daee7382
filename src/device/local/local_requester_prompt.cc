// Class LocalRequester: the shortest way of small requests that nothing holds up. It has every
// check of the usual way, and leaves to that whatever is not as it nearly always is.
#include "device/local/local_requester.h"

namespace weft::device {

using iwarp::Fault;

bool LocalRequester::post_promptly(const ibv_send_wr& request, bool signaled) {
  if (!idle() || failure_ || !connection_.peer_takes_requests()) return false;
  const bool sends = request.opcode == IBV_WR_SEND;
  if (!(sends ? send_promptly(request) : write_promptly(request))) return false;
  ++posted_;
  if (signaled) {
    parts_.completions.complete_send(sends ? IBV_WC_SEND : IBV_WC_RDMA_WRITE, request.wr_id,
                                     request.sg_list->length, give_covered());
  } else {
    ++silent_;
  }
  return true;
}

// As execute_send().
bool LocalRequester::send_promptly(const ibv_send_wr& request) {
  const std::uint32_t length_bytes = request.sg_list->length;
  const bool in_ring = length_bytes != 0 && length_bytes <= inbox::inline_bytes;
  if (!in_ring || connection_.peer_matches() || !receives_.available()) return false;
  const inbox::Receive& receive = receives_.oldest();
  const void* const payload = readable(request);
  length_bytes_ = length_bytes;
  if (!payload || length_bytes > receive.length_bytes || !connection_.has_room(length_bytes) ||
      !takes_whole(receive)) {
    return false;
  }
  const bool solicited = (request.send_flags & IBV_SEND_SOLICITED) != 0;
  const inbox::MessageHeader header{.kind = inbox::Kind::send,
                                    .flags = solicited ? inbox::flag_solicited : std::uint8_t{0},
                                    .length_bytes = length_bytes};
  const iovec here{const_cast<void*>(payload), length_bytes};
  const bool pushed = length_bytes <= inbox::first_payload_bytes
                          ? connection_.push_short(header, payload)
                          : connection_.push(header, {&here, 1});
  if (pushed) receives_.claim();
  return pushed;
}

// The memory of a request of one piece; null: where the request is refused or fails.
const void* LocalRequester::readable(const ibv_send_wr& request) {
  const ibv_sge& piece = *request.sg_list;
  if ((request.send_flags & IBV_SEND_INLINE) != 0) {
    const bool fits = piece.length <= parts_.limits.inline_bytes;
    return fits ? reinterpret_cast<const void*>(piece.addr) : nullptr;
  }
  const iwarp::Memory memory =
      parts_.memory.local_memory({piece.addr, piece.length, piece.lkey}, false);
  return memory.fault == Fault::none ? memory.at : nullptr;
}

bool LocalRequester::write_promptly(const ibv_send_wr& request) {
  const std::uint32_t rkey = request.wr.rdma.rkey;
  if (!is_last_mapped(rkey) || request.sg_list->length == 0) return false;
  const void* const from = readable(request);
  if (!from) return false;
  length_bytes_ = request.sg_list->length;
  const iovec here{const_cast<void*>(from), static_cast<std::size_t>(length_bytes_)};
  if (!place_mapped(rkey, request.wr.rdma.remote_addr, {&here, 1})) return false;
  end_accesses();
  return true;
}

// A Write of a list, as write_promptly(). False: it goes the usual way, from its beginning.
bool LocalRequester::write_mapped(const iwarp::WorkRequest& work) {
  if (work.operation != iwarp::Operation::write || !is_last_mapped(work.rkey) || !idle() ||
      failure_ || !connection_.peer_takes_requests() || !gather(work) || length_bytes_ == 0 ||
      !place_mapped(work.rkey, work.remote_address, local_)) {
    return false;
  }
  (void)complete(work, iwarp::Status::success);
  return true;
}

// Writes length_bytes_ bytes to the region of the last Write, which this process maps as well.
// False: the usual way decides; a part of them may have been placed.
bool LocalRequester::place_mapped(std::uint32_t stag, std::uint64_t offset,
                                  std::span<const iovec> here) {
  const inbox::Inbox& peer = connection_.peer();
  const auto found = connection_.grants().look_up({.stag = stag,
                                                   .domain = peer.domain,
                                                   .offset = offset,
                                                   .length_bytes = length_bytes_,
                                                   .needed = IBV_ACCESS_REMOTE_WRITE},
                                                  known_);
  const std::uint32_t granted = peer.access.load(std::memory_order_relaxed);
  if (!found.known || found.fault != Fault::none || (granted & IBV_ACCESS_REMOTE_WRITE) == 0) {
    return false;
  }
  std::byte* const at = mapped_.find(found);
  if (!at) return false;
  const auto result = mapped_.write(found, at, here);
  if (result == MappedAccess::Result::withdrawn) known_ = {};
  if (result != MappedAccess::Result::done) return false;
  counts_.add(found, iwarp::RemoteRight::write, length_bytes_);
  return true;
}

}  // namespace weft::device
