#include "device/queue_pair/datagram_carrier.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/fault_handler.h"
#include "base/guarded_memory.h"
#include "device/addresses.h"
#include "device/connect/slots.h"
#include "device/datagram/address_handle.h"
#include "device/query.h"
#include "iwarp/scatter.h"

namespace weft::device {
namespace {

using iwarp::Fault;
using iwarp::Operation;
using iwarp::Status;

// With the highest bit set, the sender's own key goes out (InfiniBand Architecture Specification,
// volume 1, §10.2.5), so that only the owner of such a key can use it.
constexpr std::uint32_t controlled_key = 0x80000000;
// Queue pair numbers have 24 bits in BTH and DETH.
constexpr std::uint32_t largest_number = 0xFFFFFF;

// What RoCE adapters report in place of the service level of a received datagram: bit 3 for a UDP
// header, and below it 1 for IPv6 or 2 for IPv4. UCX 1.13 takes the length of the addresses in the
// GRH from it and drops datagrams that do not match.
std::uint8_t packet_type(Bytes grh) {
  constexpr std::uint8_t udp = 8;
  const bool ipv6 = std::to_integer<unsigned>(grh.front()) >> 4 == 6;
  return ipv6 ? udp | 1 : udp | 2;
}

std::uint64_t length_of(const ibv_send_wr& request) {
  std::uint64_t total = 0;
  for (int i = 0; i < request.num_sge; ++i) total += request.sg_list[i].length;
  return total;
}

// Copies `grh` and then the message to the targets, which have room for both. False: a target
// cannot be accessed.
bool scatter(std::span<const iovec> targets, Bytes grh, Bytes message) {
  std::array<Bytes, 2> parts{grh, message};
  for (const iovec& target : targets) {
    auto* at = static_cast<std::byte*>(target.iov_base);
    std::size_t room = target.iov_len;
    for (Bytes& part : parts) {
      const std::size_t count = std::min(room, part.size());
      if (!guarded_store(at, part.data(), count)) return false;
      at += count;
      room -= count;
      part = part.subspan(count);
    }
  }
  return true;
}

}  // namespace

// --- Sending -------------------------------------------------------------------------------------

// ibv_post_send(3) lists the opcodes of UD: Sends only, because a datagram has no answer and no
// remote address. An address handle works only in the protection domain of the queue pair.
int DatagramCarrier::check(const ibv_send_wr& request, const ibv_qp& qp,
                           std::uint32_t inline_bytes) {
  if (request.opcode != IBV_WR_SEND && request.opcode != IBV_WR_SEND_WITH_IMM) return EINVAL;
  const ibv_ah* ah = request.wr.ud.ah;
  if (!ah || ah->pd != qp.pd || request.wr.ud.remote_qpn > largest_number) return EINVAL;
  const bool too_long = length_of(request) > inline_bytes;
  return (request.send_flags & IBV_SEND_INLINE) != 0 && too_long ? EINVAL : 0;
}

// A request that fails is queued as well, so that its completion comes in the order of posting. In
// ERR and SQE requests are accepted and flushed. What one call posts leaves at its end (posted()),
// or as soon as there is enough for a system call.
int DatagramCarrier::post(const SendRequest& request, QueuePairLock& lock) {
  unsent_.push_back({.wr_id = request.work.wr_id, .signaled = request.work.signaled});
  Unsent& added = unsent_.back();
  const bool stopped = parts_.qp.state == IBV_QPS_ERR || parts_.qp.state == IBV_QPS_SQE;
  added.status = stopped ? Status::flushed : collect_pieces(request.work);
  if (added.status == Status::success) build(*request.verbs, added);
  // The carrier does not see polls that find a completion in the queue.
  gathering_.look(parts_.completions.send_slots().taken());
  gathering_.add(added.packet.size());
  if (unsent_.size() % most_datagrams_of_a_call == 0) advance(lock);
  return 0;
}

void DatagramCarrier::posted(QueuePairLock& lock) {
  if (gathering_.may_wait() && may_gather() && deferral_.begin()) return;
  advance(lock);
  gathering_.left();
}

// A program that has armed a completion queue may sleep next.
bool DatagramCarrier::may_gather() const {
  return parts_.qp.state == IBV_QPS_RTS && !parts_.completions.awaited();
}

void DatagramCarrier::drive(Occasion occasion, QueuePairLock& lock) {
  if (occasion == Occasion::polled) {
    gathering_.polled();
    send_gathered(lock);
  } else if (occasion == Occasion::deferred && gathering_.waits()) {
    if (!deferral_.is_for_program()) gathering_.missed();
    advance(lock);
  }
}

void DatagramCarrier::send_gathered(QueuePairLock& lock) {
  if (gathering_.waits()) advance(lock);
}

// Into pieces_, of the message.
Status DatagramCarrier::collect_pieces(const iwarp::WorkRequest& work) {
  pieces_.clear();
  const std::uint64_t bytes = iwarp::total_bytes(work.slices);
  // A message of UD is one packet; InfiniBand completes a longer one with LOC_LEN_ERR.
  if (bytes > datagram_mtu_bytes(parts_.context.device())) return Status::local_length;
  // Inline data is not registered, so there is no key to check (ibv_post_send(3), IBV_SEND_INLINE).
  if (work.inline_data) {
    for (const auto& slice : work.slices) {
      pieces_.push_back({reinterpret_cast<void*>(slice.address), slice.length_bytes});
    }
    return Status::success;
  }
  const Fault fault = iwarp::map_slices(parts_.memory, work.slices, 0, bytes, false, pieces_);
  return fault == Fault::none ? Status::success : Status::local_protection;
}

// Builds the whole packet, although the socket may have no room: afterwards neither the address
// handle nor the memory of the request is needed any more.
void DatagramCarrier::build(const ibv_send_wr& request, Unsent& datagram) {
  const AddressHandle& address = *AddressHandle::of(request.wr.ud.ah);
  const bool immediate = request.opcode == IBV_WR_SEND_WITH_IMM;
  const bool own_key = (request.wr.ud.remote_qkey & controlled_key) != 0;
  ibv_qp_attr& attributes = parts_.attributes;
  wire::IbHeaders headers;
  headers.bth.opcode = {wire::IbTransport::ud, immediate ? wire::IbOperation::send_only_immediate
                                                         : wire::IbOperation::send_only};
  headers.bth.solicited = (request.send_flags & IBV_SEND_SOLICITED) != 0;
  headers.bth.destination_qp = request.wr.ud.remote_qpn;
  headers.bth.psn = attributes.sq_psn;
  headers.deth = {.queue_key = own_key ? attributes.qkey : request.wr.ud.remote_qkey,
                  .source_qp = parts_.qp.qp_num};
  if (immediate) headers.immediate = ntohl(request.imm_data);
  // Each datagram has the next PSN. Receivers of UD do not check it, but an analyzer shows losses
  // by it.
  attributes.sq_psn = wire::psn_plus(attributes.sq_psn, 1);
  datagram.route = address.route_to(request.wr.ud.remote_qpn);
  // The port of the socket that will send the packet: the ICRC covers the UDP header.
  set_port(datagram.route.source, slot::port_of(parts_.qp.qp_num));
  datagram.interface_index = address.interface_index();
  datagram.packet = make_datagram(datagram.route, headers, pieces_);
  if (datagram.packet.empty()) datagram.status = Status::local_protection;
}

// Sends in the order of posting, as far as the socket has room.
// A request that failed while it was built stops the queue only when its turn comes: the datagrams
// before it are sent.
void DatagramCarrier::advance(QueuePairLock& /*lock*/) {
  deferral_.end();
  gathering_.sent();
  while (!unsent_.empty() && parts_.qp.state != IBV_QPS_SQD) {
    const Status status = unsent_.front().status;
    if (status == Status::success) {
      if (!transmit_some()) return;
      continue;
    }
    complete_oldest(status);
    // A flushed request is a consequence of an earlier failure and stops nothing by itself.
    if (status != Status::flushed) stop_sending();
  }
}

// Sends the oldest datagrams by one call, as long as the same socket sends them. False where it has
// no room for all of them: DatagramReceiver::datagram_room() comes when it has.
bool DatagramCarrier::transmit_some() {
  Datagrams& datagrams = parts_.context.device().datagrams();
  const DatagramRoute& first = unsent_.front().route;
  const auto socket = datagrams.socket(parts_.qp.qp_num, first.source);
  std::array<OutgoingDatagram, most_datagrams_of_a_call> batch;
  std::size_t count = 0;
  for (Unsent& next : unsent_) {
    if (count == batch.size() || next.status != Status::success) break;
    if (!same_host_address(next.route.source, first.source)) break;
    batch[count++] = {&next.route, next.interface_index, next.packet};
  }
  // Without a socket the host has no such addresses: the datagrams are lost.
  const std::size_t sent = socket ? socket->send(std::span(batch).first(count)) : count;
  for (std::size_t i = 0; i < sent; ++i) {
    if (socket) {
      datagrams.capture(*batch[i].route, batch[i].packet, wire::PcapngDirection::outbound);
    }
    if (parts_.observation) [[unlikely]]
      parts_.observation->watch.carried_out();
    complete_oldest(Status::success);
  }
  if (sent < count) socket->await_room(receiver_);
  return sent == count;
}

void DatagramCarrier::complete_oldest(Status status) {
  complete(unsent_.front(), status);
  unsent_.pop_front();
}

// A datagram is complete when the kernel has it. Unsignaled ones are counted, and the next
// completion gives back their places with its own.
void DatagramCarrier::complete(const Unsent& datagram, Status status) {
  const std::uint32_t covered = ++uncompleted_;
  if (status == Status::success && !datagram.signaled) return;
  uncompleted_ = 0;
  parts_.complete({.wr_id = datagram.wr_id,
                   .operation = Operation::send,
                   .status = status,
                   .covered = covered});
}

// A request was wrong: nothing more is sent until the program takes the queue pair back to RTS, but
// datagrams are received as before (InfiniBand Architecture Specification, volume 1, §10.3.1.7).
void DatagramCarrier::stop_sending() {
  if (parts_.qp.state == IBV_QPS_RTS) parts_.qp.state = IBV_QPS_SQE;
  flush_all();
}

void DatagramCarrier::flush_all() {
  while (!unsent_.empty()) complete_oldest(Status::flushed);
}

// An adapter would have sent long ago what was posted before this call.
void DatagramCarrier::flush(QueuePairLock& lock) {
  send_gathered(lock);
  flush_all();
}

// What is not sent yet disappears without a completion, as RESET demands. The places of unsignaled
// datagrams are given back here, because no later completion covers them.
void DatagramCarrier::stop(QueuePairLock& lock) {
  send_gathered(lock);
  unsent_.clear();
  parts_.completions.send_slots().give_back_locked(std::exchange(uncompleted_, 0));
}

// --- Receiving -----------------------------------------------------------------------------------

bool DatagramCarrier::take(const Datagram& datagram, QueuePairLock& /*lock*/) {
  DatagramCounters& counters = parts_.context.device().datagrams().counters();
  const ibv_qp_state state = parts_.qp.state;
  // Receives may be posted from INIT on, but the queue pair receives from RTR on.
  if (parts_.destroyed || state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_ERR) {
    ++counters.no_queue_pair;
    return true;
  }
  // A wrong key, and a missing receive below, drop the datagram without an error at either end;
  // only the counters show it.
  if (datagram.headers.deth.queue_key != parts_.attributes.qkey) {
    ++counters.wrong_queue_key;
    return true;
  }
  iwarp::ReceiveRequest receive;
  if (!parts_.receives.take(receive, false)) {
    ++counters.no_receive;
    return true;
  }
  const Status status = place(receive, datagram);
  complete_receive(receive.wr_id, status, datagram);
  return status == Status::success;
}

// The first 40 bytes of the receive are for the GRH; a program that receives datagrams must provide
// them in addition to its message.
Status DatagramCarrier::place(const iwarp::ReceiveRequest& receive, const Datagram& datagram) {
  const std::size_t bytes = grh_bytes + datagram.message.size();
  if (bytes > iwarp::total_bytes(receive.slices)) return Status::local_length;
  pieces_.clear();
  // Copies to application memory rely on the signal handler: see base/guarded_memory.h.
  recheck_faults(sys::now_ns());
  if (iwarp::map_slices(parts_.memory, receive.slices, 0, bytes, true, pieces_) != Fault::none) {
    return Status::local_protection;
  }
  const bool placed = scatter(pieces_, datagram.grh, datagram.message);
  return placed ? Status::success : Status::local_protection;
}

void DatagramCarrier::complete_receive(std::uint64_t wr_id, Status status,
                                       const Datagram& datagram) {
  parts_.note_arrival();
  // As on adapters, byte_len counts the GRH.
  const auto bytes = static_cast<std::uint32_t>(grh_bytes + datagram.message.size());
  ibv_wc& completion =
      parts_.completions.add_receive({.wr_id = wr_id,
                                      .status = status,
                                      .length_bytes = bytes,
                                      .solicited = datagram.headers.bth.solicited,
                                      .has_immediate = datagram.headers.layout().immediate},
                                     parts_.receives.slots());
  if (status != Status::success) return;
  completion.wc_flags |= IBV_WC_GRH;
  completion.slid = lid_of_sender(parts_.context.device(), datagram.grh);
  const bool lids = parts_.context.device().has_lids();
  completion.sl = lids ? std::uint8_t{0} : packet_type(datagram.grh);
  completion.src_qp = datagram.headers.deth.source_qp;
  completion.imm_data = htonl(datagram.headers.immediate);
}

}  // namespace weft::device
