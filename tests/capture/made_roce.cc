#include "capture/made_roce.h"

#include <algorithm>

#include "base/bytes.h"
#include "wire/ethernet.h"
#include "wire/ib_link.h"
#include "wire/icrc.h"
#include "wire/ip.h"
#include "wire/link.h"
#include "wire/udp.h"

namespace weft::capture::test {
namespace {

using Carrier = RoceOptions::Carrier;
using Operation = wire::IbOperation;

constexpr std::int64_t first_ns = 1'700'000'000'000'000'000;
constexpr std::int64_t step_ns = 10'000;
constexpr std::uint16_t ethertype_roce_v1 = 0x8915;
constexpr std::uint64_t service = 0x0000000001061234;

template <typename Header>
void append(Content& out, const Header& header, std::size_t bytes) {
  out.resize(out.size() + bytes);
  header.emit(MutableBytes(out).last(bytes));
}

wire::Ipv6Header ipv6_like(std::uint8_t from, std::uint8_t to, std::uint8_t next,
                           std::size_t payload_bytes, std::uint8_t ecn) {
  wire::Ipv6Header header{.traffic_class = ecn,
                          .payload_bytes = static_cast<std::uint16_t>(payload_bytes),
                          .next_header = static_cast<wire::IpProtocol>(next)};
  header.source = {std::byte{0xFD}};
  header.destination = {std::byte{0xFD}};
  header.source[15] = std::byte{from};
  header.destination[15] = std::byte{to};
  return header;
}

wire::Ipv4Header ipv4(std::uint8_t from, std::uint8_t to, std::size_t payload_bytes,
                      std::uint8_t ecn) {
  wire::Ipv4Header header{.traffic_class = ecn,
                          .total_bytes = static_cast<std::uint16_t>(20 + payload_bytes),
                          .dont_fragment = true,
                          .protocol = wire::IpProtocol::udp};
  header.source = {std::byte{10}, std::byte{0}, std::byte{0}, std::byte{from}};
  header.destination = {std::byte{10}, std::byte{0}, std::byte{0}, std::byte{to}};
  return header;
}

wire::Icrc icrc_of(Carrier carrier, Bytes network, Bytes bth) {
  switch (carrier) {
    case Carrier::v1:
      return wire::Icrc::roce_v1(network, bth);
    case Carrier::native:
    case Carrier::native_global:
      return wire::Icrc::native(network, bth);
    default:
      return wire::Icrc::roce_v2(network, bth);
  }
}

std::uint16_t link_type_of(Carrier carrier) {
  const bool native = carrier == Carrier::native || carrier == Carrier::native_global;
  return static_cast<std::uint16_t>(native ? wire::link_type::infiniband
                                           : wire::link_type::ethernet);
}

Content ethernet(Carrier carrier) {
  Content out(12);
  const std::uint16_t type = carrier == Carrier::ipv4   ? 0x0800
                             : carrier == Carrier::ipv6 ? 0x86DD
                                                        : ethertype_roce_v1;
  out.resize(14);
  store_be(&out[12], type);
  return out;
}

std::uint64_t packets_of(std::size_t bytes, std::size_t mtu_bytes) {
  return std::max<std::uint64_t>((bytes + mtu_bytes - 1) / mtu_bytes, 1);
}

// Middle and last follow first in the numbering of operations.
Operation behind(Operation first, unsigned steps) {
  return static_cast<Operation>(static_cast<unsigned>(first) + steps);
}

}  // namespace

Content RoceTalk::network(Side side, std::size_t transport_bytes) const {
  const std::uint8_t from = side == Side::a ? options_.host_a : options_.host_b;
  const std::uint8_t to = side == Side::a ? options_.host_b : options_.host_a;
  constexpr std::size_t udp_bytes = wire::UdpHeader::header_bytes;
  const wire::UdpHeader udp{
      .source_port = source_port_,
      .destination_port = wire::roce_v2_port,
      .length_bytes = static_cast<std::uint16_t>(udp_bytes + transport_bytes)};
  const auto grh =
      ipv6_like(from, to, wire::GlobalRouteHeader::next_transport, transport_bytes, ecn_);
  Content out;
  switch (options_.carrier) {
    case Carrier::ipv4:
      append(out, ipv4(from, to, udp_bytes + transport_bytes, ecn_), 20);
      append(out, udp, udp_bytes);
      break;
    case Carrier::ipv6:
      append(out, ipv6_like(from, to, 17, udp_bytes + transport_bytes, ecn_), 40);
      append(out, udp, udp_bytes);
      break;
    case Carrier::v1:
      append(out, grh, 40);
      break;
    case Carrier::native:
    case Carrier::native_global: {
      const bool global = options_.carrier == Carrier::native_global;
      const std::size_t words = (8 + (global ? 40 : 0) + transport_bytes) / 4;
      append(out,
             wire::LocalRouteHeader{.next = global ? wire::LocalRouteHeader::Next::global
                                                   : wire::LocalRouteHeader::Next::transport,
                                    .destination_lid = to,
                                    .packet_words = static_cast<std::uint16_t>(words),
                                    .source_lid = from},
             wire::LocalRouteHeader::header_bytes);
      if (global) append(out, grh, 40);
    }
  }
  return out;
}

void RoceTalk::packet(Side side, wire::IbHeaders headers, Bytes payload) {
  constexpr std::size_t icrc_bytes = wire::IbPacketView::icrc_bytes;
  if (headers.bth.destination_qp == 0) {
    headers.bth.destination_qp = side == Side::a ? options_.qp_b : options_.qp_a;
  }
  const auto needed = static_cast<std::uint8_t>((4 - payload.size() % 4) % 4);
  headers.bth.pad_bytes = pad_bytes_.value_or(needed);
  Content transport(headers.size());
  headers.emit(transport);
  transport.insert(transport.end(), payload.begin(), payload.end());
  transport.resize(transport.size() + headers.bth.pad_bytes);
  const Content network = this->network(side, transport.size() + icrc_bytes);
  const std::uint32_t icrc = icrc_of(options_.carrier, network, transport).value();
  transport.resize(transport.size() + icrc_bytes);
  store_le(&transport[transport.size() - icrc_bytes], icrc);

  MadePacket packet{.time_ns = first_ns + step_ns * static_cast<std::int64_t>(capture_.size())};
  packet.link_type = link_type_of(options_.carrier);
  if (packet.link_type == wire::link_type::ethernet) packet.bytes = ethernet(options_.carrier);
  packet.bytes.insert(packet.bytes.end(), network.begin(), network.end());
  packet.bytes.insert(packet.bytes.end(), transport.begin(), transport.end());
  if (packet.link_type == wire::link_type::infiniband) {
    packet.bytes.resize(packet.bytes.size() + 2);  // the variant CRC
  }
  packet.wire_bytes = packet.bytes.size();
  capture_.push_back(std::move(packet));
}

wire::IbHeaders RoceTalk::headers(Operation operation, std::uint32_t psn) const {
  wire::IbHeaders headers;
  headers.bth.opcode = {options_.transport, operation};
  headers.bth.psn = psn;
  headers.xrc_srq = 5;
  return headers;
}

std::uint32_t RoceTalk::take_psns(Side side, std::uint64_t count) {
  std::uint32_t& next = side == Side::a ? a_ : b_;
  const std::uint32_t first = next;
  next = wire::psn_plus(next, count);
  return first;
}

void RoceTalk::acknowledge(Side side, std::uint32_t psn, const wire::Aeth& aeth) {
  auto headers = this->headers(Operation::acknowledge, psn);
  headers.aeth = aeth;
  packet(side, headers);
}

void RoceTalk::message(Side side, Operation first, Operation only, const wire::IbHeaders& shared,
                       Bytes payload) {
  const std::uint64_t packets = packets_of(payload.size(), options_.mtu_bytes);
  std::uint32_t psn = take_psns(side, packets);
  for (std::uint64_t i = 0; i < packets; ++i, psn = wire::psn_plus(psn, 1)) {
    const bool last = i + 1 == packets;
    const unsigned step = i == 0 ? 0 : last ? 2 : 1;
    wire::IbHeaders headers = shared;
    Operation operation = packets == 1 ? only : behind(first, step);
    // With an immediate, Last and Only have their own numbers, one further.
    if (shared.immediate != 0 && last) operation = behind(operation, 1);
    headers.bth.opcode = {options_.transport, operation};
    headers.bth.psn = psn;
    headers.bth.acknowledge_request = last;
    const std::size_t size = std::min(payload.size(), options_.mtu_bytes);
    packet(side, headers, payload.first(size));
    payload = payload.subspan(size);
  }
  if (acknowledges_ && options_.transport != wire::IbTransport::uc) {
    acknowledge(other(side), wire::psn_plus(psn, wire::psn_mask));
  }
}

void RoceTalk::send(Side side, std::size_t bytes) {
  send(side, message_bytes(next_psn(side), bytes));
}

void RoceTalk::send(Side side, Bytes payload) {
  message(side, Operation::send_first, Operation::send_only, headers(Operation::send_only, 0),
          payload);
}

void RoceTalk::send_immediate(Side side, std::size_t bytes, std::uint32_t immediate) {
  const Content payload = message_bytes(next_psn(side), bytes);
  auto shared = headers(Operation::send_only, 0);
  shared.immediate = immediate;
  message(side, Operation::send_first, Operation::send_only, shared, payload);
}

void RoceTalk::write(Side side, std::uint32_t key, std::uint64_t address, std::size_t bytes) {
  write(side, key, address, memory_bytes(key, address, bytes));
}

void RoceTalk::write(Side side, std::uint32_t key, std::uint64_t address, Bytes payload) {
  auto shared = headers(Operation::write_only, 0);
  shared.reth = {
      .address = address, .key = key, .length_bytes = static_cast<std::uint32_t>(payload.size())};
  message(side, Operation::write_first, Operation::write_only, shared, payload);
}

void RoceTalk::read(Side side, std::uint32_t key, std::uint64_t address, std::size_t bytes) {
  read(side, key, address, memory_bytes(key, address, bytes));
}

void RoceTalk::read(Side side, std::uint32_t key, std::uint64_t address, Bytes answer) {
  const auto bytes = static_cast<std::uint32_t>(answer.size());
  const std::uint32_t psn = read_request(side, key, address, bytes);
  read_answer(other(side), psn, answer);
}

std::uint32_t RoceTalk::read_request(Side side, std::uint32_t key, std::uint64_t address,
                                     std::uint32_t bytes) {
  const std::uint32_t psn = take_psns(side, packets_of(bytes, options_.mtu_bytes));
  auto request = headers(Operation::read_request, psn);
  request.reth = {.address = address, .key = key, .length_bytes = bytes};
  packet(side, request);
  return psn;
}

void RoceTalk::read_answer(Side side, std::uint32_t psn, Bytes rest) {
  const std::uint64_t packets = packets_of(rest.size(), options_.mtu_bytes);
  for (std::uint64_t i = 0; i < packets; ++i, psn = wire::psn_plus(psn, 1)) {
    const Operation operation = packets == 1       ? Operation::read_response_only
                                : i == 0           ? Operation::read_response_first
                                : i + 1 == packets ? Operation::read_response_last
                                                   : Operation::read_response_middle;
    auto answer = headers(operation, psn);
    answer.aeth = wire::Aeth::ack(0);
    const std::size_t size = std::min(rest.size(), options_.mtu_bytes);
    packet(side, answer, rest.first(size));
    rest = rest.subspan(size);
  }
}

void RoceTalk::fetch_add(Side side, std::uint32_t key, std::uint64_t address, std::uint64_t add,
                         std::uint64_t original) {
  auto request = headers(Operation::fetch_add, take_psns(side, 1));
  request.atomic = {.address = address, .key = key, .swap_or_add = add};
  packet(side, request);
  auto answer = headers(Operation::atomic_acknowledge, request.bth.psn);
  answer.aeth = wire::Aeth::ack(0);
  answer.atomic_original = original;
  packet(other(side), answer);
}

// --- The connection manager ----------------------------------------------------------------------

void RoceTalk::datagram(Side side, wire::MadHeader mad, Bytes message) {
  mad.transaction = options_.transaction;
  Content payload(wire::MadHeader::datagram_bytes);
  mad.emit(payload);
  std::ranges::copy(message, payload.begin() + wire::MadHeader::header_bytes);
  wire::IbHeaders headers;
  headers.bth.opcode = {wire::IbTransport::ud, Operation::send_only};
  headers.bth.psn = datagrams_++;
  headers.bth.destination_qp = wire::general_services_qp;
  headers.deth = {.queue_key = wire::general_services_queue_key,
                  .source_qp = wire::general_services_qp};
  packet(side, headers, payload);
}

namespace {

template <typename Message>
Content bytes_of(const Message& message) {
  Content bytes(Message::header_bytes);
  message.emit(bytes);
  return bytes;
}

std::uint8_t mtu_code(std::size_t mtu_bytes) {
  std::uint8_t code = 1;
  while ((128U << code) < mtu_bytes) ++code;
  return code;
}

}  // namespace

void RoceTalk::connect() {
  using Attribute = wire::CmAttribute;
  const bool uc = options_.transport == wire::IbTransport::uc;
  const bool xrc = options_.transport == wire::IbTransport::xrc;
  datagram(
      Side::a, {.attribute = Attribute::request},
      bytes_of(wire::CmRequest{.local_id = 0xA0000000U | options_.qp_a,
                               .service = service,
                               .local_qp = options_.qp_a,
                               .responder_resources = 4,
                               .initiator_depth = 3,
                               .starting_psn = options_.psn_b,
                               .path_mtu_code = mtu_code(options_.mtu_bytes),
                               .transport_code = static_cast<std::uint8_t>(uc    ? 1
                                                                           : xrc ? 3
                                                                                 : 0),
                               .extended_transport_code = static_cast<std::uint8_t>(xrc ? 1 : 0),
                               .response_timeout_code = 20,  // as Linux
                               .acknowledgement_timeout_code = 19}));
  datagram(Side::b, {.attribute = Attribute::reply},
           bytes_of(wire::CmReply{.local_id = 0xB0000000U | options_.qp_b,
                                  .remote_id = 0xA0000000U | options_.qp_a,
                                  .local_qp = options_.qp_b,
                                  .starting_psn = options_.psn_a,
                                  .responder_resources = 2,
                                  .initiator_depth = 1}));
  datagram(Side::a, {.attribute = Attribute::ready_to_use},
           bytes_of(wire::CmPair{.local_id = 0xA0000000U | options_.qp_a,
                                 .remote_id = 0xB0000000U | options_.qp_b}));
}

void RoceTalk::reject() {
  datagram(Side::b, {.attribute = wire::CmAttribute::reject},
           bytes_of(wire::CmReject{.remote_id = 0xA0000000U | options_.qp_a,
                                   .reason = wire::CmReject::by_consumer}));
}

void RoceTalk::disconnect() {
  using Attribute = wire::CmAttribute;
  datagram(Side::a, {.attribute = Attribute::disconnect_request},
           bytes_of(wire::CmPair{.local_id = 0xA0000000U | options_.qp_a,
                                 .remote_id = 0xB0000000U | options_.qp_b,
                                 .remote_qp = options_.qp_b}));
  datagram(Side::b, {.attribute = Attribute::disconnect_reply},
           bytes_of(wire::CmPair{.local_id = 0xB0000000U | options_.qp_b,
                                 .remote_id = 0xA0000000U | options_.qp_a}));
}

}  // namespace weft::capture::test
