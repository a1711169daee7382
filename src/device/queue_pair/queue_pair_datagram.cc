// What is different where a queue pair carries datagrams: IBV_QPT_UD. A request is one packet,
// which is built when it is posted; nobody answers it.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "device/addresses.h"
#include "device/connect/slots.h"
#include "device/datagram/address_handle.h"
#include "device/datagram/datagrams.h"
#include "device/limits.h"
#include "device/query.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/queue_pair_turn.h"
#include "iwarp/scatter.h"

namespace weft::device {
namespace {

using iwarp::Fault;
using iwarp::Operation;
using iwarp::Status;

// With the highest bit set, the sender's own key goes out (InfiniBand Architecture Specification,
// volume 1, §10.2.5): so only who owns such a key can use it.
constexpr std::uint32_t controlled_key = 0x80000000;
constexpr std::uint32_t largest_number = 0xFFFFFF;

std::uint64_t length_of(const ibv_send_wr& request) {
  std::uint64_t total = 0;
  for (int i = 0; i < request.num_sge; ++i) total += request.sg_list[i].length;
  return total;
}

std::uint32_t number_of(const std::uint32_t& network_order) {
  return load_be<std::uint32_t>(reinterpret_cast<const std::byte*>(&network_order));
}

// Where a message of which `grh` comes first goes.
void scatter(std::span<const iovec> targets, Bytes grh, Bytes message) {
  std::array<Bytes, 2> parts{grh, message};
  for (const iovec& target : targets) {
    auto* at = static_cast<std::byte*>(target.iov_base);
    std::size_t room = target.iov_len;
    for (Bytes& part : parts) {
      const std::size_t count = std::min(room, part.size());
      if (count != 0) std::memcpy(at, part.data(), count);
      at += count;
      room -= count;
      part = part.subspan(count);
    }
  }
}

}  // namespace

// --- Sending -------------------------------------------------------------------------------------

int QueuePair::check_datagram(const ibv_send_wr& request) const {
  const bool send = request.opcode == IBV_WR_SEND || request.opcode == IBV_WR_SEND_WITH_IMM;
  const bool fits =
      request.num_sge >= 0 && static_cast<std::uint32_t>(request.num_sge) <= limits_.send_slices;
  const ibv_ah* ah = request.wr.ud.ah;
  if (!send || !fits || !ah || ah->pd != handle_.qp.pd) return EINVAL;
  if (request.wr.ud.remote_qpn > largest_number) return EINVAL;
  const bool too_long = length_of(request) > limits_.inline_bytes;
  if ((request.send_flags & IBV_SEND_INLINE) != 0 && too_long) return EINVAL;
  if (send_slots_.full()) return ENOMEM;
  const ibv_qp_state state = handle_.qp.state;
  const bool takes =
      state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE || state == IBV_QPS_ERR;
  return takes ? 0 : EINVAL;
}

int QueuePair::post_datagram(const ibv_send_wr& request) {
  if (const int failed = check_datagram(request)) return failed;
  send_slots_.take();
  unsent_.push_back({.wr_id = request.wr_id,
                     .signaled = signal_all_ || (request.send_flags & IBV_SEND_SIGNALED) != 0});
  UnsentDatagram& added = unsent_.back();
  const bool stopped = handle_.qp.state == IBV_QPS_ERR || handle_.qp.state == IBV_QPS_SQE;
  added.status = stopped ? Status::flushed : gather_datagram(request);
  if (added.status == Status::success) build_datagram(request, added);
  send_datagrams();
  return 0;
}

// Collects the pieces of the message in planned_.
Status QueuePair::gather_datagram(const ibv_send_wr& request) {
  planned_.clear();
  const std::uint64_t bytes = length_of(request);
  if (bytes > datagram_mtu_bytes(context_.device())) return Status::local_length;
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& sge = request.sg_list[i];
    if (request.send_flags & IBV_SEND_INLINE) {
      planned_.push_back({reinterpret_cast<void*>(sge.addr), sge.length});
      continue;
    }
    const iwarp::LocalSlice slice{sge.addr, sge.length, sge.lkey};
    const Fault fault = iwarp::map_slices(*this, {&slice, 1}, 0, sge.length, false, planned_);
    if (fault != Fault::none) return Status::local_protection;
  }
  return Status::success;
}

void QueuePair::build_datagram(const ibv_send_wr& request, UnsentDatagram& datagram) {
  const AddressHandle& address = *AddressHandle::of(request.wr.ud.ah);
  const bool immediate = request.opcode == IBV_WR_SEND_WITH_IMM;
  const bool own_key = (request.wr.ud.remote_qkey & controlled_key) != 0;
  wire::IbHeaders headers;
  headers.bth.opcode = {wire::IbTransport::ud, immediate ? wire::IbOperation::send_only_immediate
                                                         : wire::IbOperation::send_only};
  headers.bth.solicited = (request.send_flags & IBV_SEND_SOLICITED) != 0;
  headers.bth.destination_qp = request.wr.ud.remote_qpn;
  headers.bth.psn = attributes_.sq_psn;
  headers.deth = {.queue_key = own_key ? attributes_.qkey : request.wr.ud.remote_qkey,
                  .source_qp = handle_.qp.qp_num};
  if (immediate) headers.immediate = number_of(request.imm_data);
  attributes_.sq_psn = wire::psn_plus(attributes_.sq_psn, 1);
  datagram.route = address.route_to(request.wr.ud.remote_qpn);
  set_port(datagram.route.source, slot::port_of(handle_.qp.qp_num));
  datagram.interface_index = address.interface_index();
  datagram.packet = make_datagram(datagram.route, headers, planned_);
}

// In the order of posting, as far as there is room.
void QueuePair::send_datagrams() {
  while (!unsent_.empty() && handle_.qp.state != IBV_QPS_SQD) {
    const UnsentDatagram& oldest = unsent_.front();
    if (oldest.status == Status::success && !transmit(oldest)) return;
    const bool failed = oldest.status != Status::success && oldest.status != Status::flushed;
    complete_datagram(oldest.wr_id, oldest.status, oldest.signaled);
    unsent_.pop_front();
    if (failed) stop_sending();
  }
}

// False where there is no room: it will be called again.
bool QueuePair::transmit(const UnsentDatagram& datagram) {
  Datagrams& datagrams = context_.device().datagrams();
  const int family = datagram.route.destination.ss_family;
  const auto socket = datagrams.socket(handle_.qp.qp_num, family);
  if (!socket) return true;  // no such addresses here: it gets nowhere
  if (!socket->send(datagram.route, datagram.interface_index, datagram.packet)) {
    socket->await_room(weak_from_this());
    return false;
  }
  datagrams.capture(datagram.route, datagram.packet, wire::PcapngDirection::outbound);
  return true;
}

void QueuePair::datagram_room() {
  const Turn turn(*this);
  send_datagrams();
}

void QueuePair::complete_datagram(std::uint64_t wr_id, Status status, bool signaled) {
  const std::uint32_t covered = ++untold_;
  if (status == Status::success && !signaled) return;
  untold_ = 0;
  complete_send(
      {.wr_id = wr_id, .operation = Operation::send, .status = status, .covered = covered});
}

// A request of ours was wrong: nothing more is sent until the program says so, but datagrams are
// received as ever (§10.3.1.7 of the same).
void QueuePair::stop_sending() {
  if (handle_.qp.state == IBV_QPS_RTS) handle_.qp.state = IBV_QPS_SQE;
  flush_datagrams();
}

void QueuePair::flush_datagrams() {
  for (; !unsent_.empty(); unsent_.pop_front()) {
    const UnsentDatagram& oldest = unsent_.front();
    complete_datagram(oldest.wr_id, Status::flushed, oldest.signaled);
  }
}

void QueuePair::forget_datagrams() {
  unsent_.clear();
  untold_ = 0;
}

// --- Receiving -----------------------------------------------------------------------------------

void QueuePair::take_datagram(const Datagram& datagram) {
  const Turn turn(*this);
  DatagramCounters& counters = context_.device().datagrams().counters();
  const ibv_qp_state state = handle_.qp.state;
  if (destroyed_ || state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_ERR) {
    ++counters.nobody;
    return;
  }
  if (datagram.headers.deth.queue_key != attributes_.qkey) {
    ++counters.wrong_queue_key;
    return;
  }
  iwarp::ReceiveRequest receive;
  if (!next_receive(receive)) {
    ++counters.no_receive;
    return;
  }
  const Status status = place_datagram(receive, datagram);
  complete_datagram_receive(receive.wr_id, status, datagram);
  if (status != Status::success) enter_error();
}

Status QueuePair::place_datagram(const iwarp::ReceiveRequest& receive, const Datagram& datagram) {
  const std::size_t bytes = grh_bytes + datagram.message.size();
  if (bytes > iwarp::total_bytes(receive.slices)) return Status::local_length;
  planned_.clear();
  if (iwarp::map_slices(*this, receive.slices, 0, bytes, true, planned_) != Fault::none) {
    return Status::local_protection;
  }
  scatter(planned_, datagram.grh, datagram.message);
  return Status::success;
}

void QueuePair::complete_datagram_receive(std::uint64_t wr_id, Status status,
                                          const Datagram& datagram) {
  complete_receive({.wr_id = wr_id,
                    .status = status,
                    .length_bytes = static_cast<std::uint32_t>(grh_bytes + datagram.message.size()),
                    .solicited = datagram.headers.bth.solicited,
                    .has_immediate = datagram.headers.layout().immediate});
  if (status != Status::success) return;
  ibv_wc& completion = pending_.back().completion;
  completion.wc_flags |= IBV_WC_GRH;
  completion.src_qp = datagram.headers.deth.source_qp;
  store_be(reinterpret_cast<std::byte*>(&completion.imm_data), datagram.headers.immediate);
}

}  // namespace weft::device
