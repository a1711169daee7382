#include "device/tap/capture_frame.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/kernel_clock.h"

namespace weft::device {

namespace {

// RFC 4291 §2.5.5.2: IPv4-mapped addresses have 80 zeros and 16 ones before the IPv4 address.
constexpr std::size_t mapped_prefix_bytes = 12;
constexpr wire::Ipv6Address mapped_prefix{
    std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0},    std::byte{0},
    std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0xFF}, std::byte{0xFF},
    std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}};

Bytes bytes_of(const iovec& vector) {
  return {static_cast<const std::byte*>(vector.iov_base), vector.iov_len};
}

// Both ends have the socket's family. If they ever differed, IPv6 with a mapped address would still
// be correct.
bool is_ipv4(const CaptureRoute& route) {
  return route.source.is_ipv4() && route.destination.is_ipv4();
}

std::size_t ip_header_bytes(const CaptureRoute& route) {
  return is_ipv4(route) ? wire::Ipv4Header::min_header_bytes : wire::Ipv6Header::header_bytes;
}

void emit_ethernet(const CaptureRoute& route, MutableBytes out) {
  wire::EthernetHeader header;
  header.source = route.source.mac();
  header.destination = route.destination.mac();
  header.type = is_ipv4(route) ? wire::EtherType::ipv4 : wire::EtherType::ipv6;
  header.emit(out);
}

void emit_ipv4(const CaptureRoute& route, std::size_t payload_bytes, MutableBytes out) {
  wire::Ipv4Header header;
  header.total_bytes = static_cast<std::uint16_t>(header.size() + payload_bytes);
  header.id = route.ip_id;
  header.dont_fragment = true;
  header.source = route.source.ipv4();
  header.destination = route.destination.ipv4();
  header.emit(out);
}

void emit_ipv6(const CaptureRoute& route, std::size_t payload_bytes, MutableBytes out) {
  wire::Ipv6Header header;
  header.payload_bytes = static_cast<std::uint16_t>(payload_bytes);
  header.source = route.source.address;
  header.destination = route.destination.address;
  header.emit(out);
}

void emit_ip(const CaptureRoute& route, std::size_t payload_bytes, MutableBytes out) {
  is_ipv4(route) ? emit_ipv4(route, payload_bytes, out) : emit_ipv6(route, payload_bytes, out);
}

}  // namespace

CaptureEndpoint CaptureEndpoint::of(const sockaddr_storage& address) {
  CaptureEndpoint endpoint{mapped_prefix};
  if (address.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof in);
    std::memcpy(endpoint.address.data() + mapped_prefix_bytes, &in.sin_addr, 4);
    endpoint.port = ntohs(in.sin_port);
  } else if (address.ss_family == AF_INET6) {
    sockaddr_in6 in6;
    std::memcpy(&in6, &address, sizeof in6);
    std::memcpy(endpoint.address.data(), &in6.sin6_addr, 16);
    endpoint.port = ntohs(in6.sin6_port);
  }
  return endpoint;
}

bool CaptureEndpoint::is_ipv4() const {
  return std::equal(address.begin(), address.begin() + mapped_prefix_bytes, mapped_prefix.begin());
}

wire::Ipv4Address CaptureEndpoint::ipv4() const {
  return {address[12], address[13], address[14], address[15]};
}

// The bit of value 2 in the first byte marks a locally administered address (IEEE 802), so that no
// manufacturer's address is imitated. The rest distinguishes the hosts of one capture.
wire::MacAddress CaptureEndpoint::mac() const {
  return {std::byte{2}, std::byte{0}, address[12], address[13], address[14], address[15]};
}

// Reserves the frames, because vectors_ refers to them.
void CaptureBatch::restart(std::size_t packets) {
  frames_.clear();
  frames_.reserve(packets);
  vectors_.clear();
  now_ns_ = kernel_clock_ns(CLOCK_REALTIME);
}

void CaptureBatch::begin() {
  frames_.emplace_back();
  first_vector_ = vectors_.size();
  vectors_.push_back({});  // placeholder for the head: its length is not known yet
  payload_bytes_ = 0;
}

void CaptureBatch::payload(Bytes piece) {
  if (piece.empty()) return;
  vectors_.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
  payload_bytes_ += piece.size();
}

// Writes the headers now that the payload's length is known, and computes the TCP checksum, so that
// readers do not report errors.
void CaptureBatch::finish(const CaptureRoute& route, wire::TcpHeader tcp) {
  tcp.source_port = route.source.port;
  tcp.destination_port = route.destination.port;
  // The field counts as zero while its own value is computed (RFC 9293 §3.1).
  tcp.checksum = 0;
  const std::size_t ip_at = wire::PcapngPacket::head_bytes + wire::EthernetHeader::header_bytes;
  const std::size_t tcp_at = ip_at + ip_header_bytes(route);
  Frame& frame = frames_.back();
  const MutableBytes head = MutableBytes(frame.head).first(tcp_at + tcp.size());
  const MutableBytes tcp_header = head.subspan(tcp_at);

  wire::PcapngPacket block;
  block.timestamp = now_ns_;
  block.captured_bytes =
      static_cast<std::uint32_t>(head.size() - wire::PcapngPacket::head_bytes + payload_bytes_);
  block.original_bytes = block.captured_bytes;
  block.direction = route.direction;
  block.emit_head(head);
  emit_ethernet(route, head.subspan(wire::PcapngPacket::head_bytes));
  emit_ip(route, tcp.size() + payload_bytes_, head.subspan(ip_at));
  tcp.emit(tcp_header);
  wire::store_tcp_checksum(tcp_header, tcp_checksum(route, tcp_header));
  vectors_[first_vector_] = {head.data(), head.size()};

  block.emit_tail(frame.tail);
  vectors_.push_back({frame.tail.data(), block.tail_bytes()});
}

// Computes the checksum over the pieces after the head of the packet being built.
std::uint16_t CaptureBatch::tcp_checksum(const CaptureRoute& route, Bytes tcp_header) const {
  const std::size_t bytes = tcp_header.size() + payload_bytes_;
  auto checksum = is_ipv4(route)
                      ? wire::pseudo_header(route.source.ipv4(), route.destination.ipv4(),
                                            wire::IpProtocol::tcp, bytes)
                      : wire::pseudo_header(route.source.address, route.destination.address,
                                            wire::IpProtocol::tcp, bytes);
  checksum.update(tcp_header);
  const auto payload = std::span(vectors_).subspan(first_vector_ + 1);
  for (const iovec& piece : payload) checksum.update(bytes_of(piece));
  return checksum.value();
}

}  // namespace weft::device
