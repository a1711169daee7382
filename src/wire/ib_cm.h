// The connection manager of InfiniBand: management datagrams to queue pair 1 that make and end
// connections (InfiniBand Architecture Specification, volume 1, §12 and §13.4; Annex A11 for the
// addresses that rdma_cm puts before the private data). Fields that Weft does not need are written
// as zero and not kept.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

inline constexpr std::uint32_t general_services_qp = 1;
inline constexpr std::uint32_t general_services_queue_key = 0x80010000;
inline constexpr std::uint8_t connection_management_class = 7;

// Values outside this list survive as values.
enum class CmAttribute : std::uint16_t {
  request = 0x10,
  message_received = 0x11,
  reject = 0x12,
  reply = 0x13,
  ready_to_use = 0x14,
  disconnect_request = 0x15,
  disconnect_reply = 0x16,
  service_id_request = 0x17,
  service_id_reply = 0x18,
  load_alternate_path = 0x19,
  alternate_path_response = 0x1A,
};

[[nodiscard]] const char* describe(CmAttribute attribute);  // "REQ"

// The common header of all management datagrams (§13.4.3).
struct MadHeader {
  static constexpr std::size_t header_bytes = 24;
  static constexpr std::size_t datagram_bytes = 256;  // always

  std::uint8_t management_class = connection_management_class;
  std::uint8_t class_version = 2;
  std::uint8_t method = 3;  // Send
  std::uint64_t transaction = 0;
  CmAttribute attribute = CmAttribute::request;
  std::uint16_t status = 0;
  std::uint32_t modifier = 0;

  [[nodiscard]] static Result<MadHeader, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const MadHeader&) const = default;
};

// The messages follow the header, and private data follows them. parse() accepts a message that was
// cut short, as long as its fields are there; the private data is then the bytes that are left.

// REQ, §12.6.5
struct CmRequest {
  static constexpr std::size_t header_bytes = 140;
  static constexpr std::size_t private_bytes = 92;

  std::uint32_t local_id = 0;
  std::uint64_t service = 0;
  std::uint32_t local_qp = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint32_t starting_psn = 0;  // of the first packet that the other side sends
  std::uint8_t retry_count = 0;
  std::uint8_t path_mtu_code = 0;  // see path_mtu_bytes()
  std::uint8_t rnr_retry_count = 0;
  bool shared_receive_queue = false;
  std::uint8_t transport_code = 0;           // 0 RC, 1 UC, 2 RD, 3: see the extended code
  std::uint8_t extended_transport_code = 0;  // 1 XRC
  // Both in units of 4.096 us times two to this power, of five bits.
  std::uint8_t response_timeout_code = 0;         // of the other side's answer to this message
  std::uint8_t acknowledgement_timeout_code = 0;  // of the primary path: its way and back

  // How long the sender waits for the answer before it repeats this message.
  [[nodiscard]] std::int64_t answer_within_ns() const;
  // The MTU in bytes; 0 if the code is not valid.
  [[nodiscard]] std::uint32_t path_mtu_bytes() const;
  [[nodiscard]] static Result<CmRequest, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const CmRequest&) const = default;
};

// REP, §12.6.8
struct CmReply {
  static constexpr std::size_t header_bytes = 36;
  static constexpr std::size_t private_bytes = 196;

  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint32_t local_qp = 0;
  std::uint32_t starting_psn = 0;  // of the first packet that the other side sends
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t rnr_retry_count = 0;
  bool shared_receive_queue = false;

  [[nodiscard]] static Result<CmReply, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const CmReply&) const = default;
};

// REJ, §12.6.7
struct CmReject {
  static constexpr std::size_t header_bytes = 84;
  static constexpr std::size_t private_bytes = 148;
  static constexpr std::uint16_t by_consumer = 28;

  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint8_t rejected = 0;  // 0 REQ, 1 REP, 2 another message
  std::uint16_t reason = 0;

  [[nodiscard]] static Result<CmReject, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const CmReject&) const = default;
};

// RTU, DREQ and DREP, §12.6.9 to §12.6.11. Only DREQ has the queue pair: in the other two its bytes
// are private data.
struct CmPair {
  static constexpr std::size_t header_bytes = 12;
  static constexpr std::size_t private_bytes = 220;

  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint32_t remote_qp = 0;

  [[nodiscard]] static Result<CmPair, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const CmPair&) const = default;
};

// SIDR_REP, §12.11.2: the queue pair of a datagram service.
struct CmServiceReply {
  static constexpr std::size_t header_bytes = 96;
  static constexpr std::size_t private_bytes = 136;

  std::uint32_t request_id = 0;
  std::uint8_t status = 0;  // 0: the queue pair is valid
  std::uint32_t queue_pair = 0;
  std::uint64_t service = 0;
  std::uint32_t queue_key = 0;

  [[nodiscard]] static Result<CmServiceReply, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const CmServiceReply&) const = default;
};

// Annex A11.2: the header that the REQ of rdma_cm has before the user's private data.
struct CmIpHeader {
  static constexpr std::size_t header_bytes = 36;
  // A service ID of rdma_cm has this prefix, then a byte of port space, then the port in two bytes.
  static constexpr std::uint64_t service_prefix = 0x0000000001;

  // Whether a REQ for this service has such a header.
  [[nodiscard]] static bool belongs_to(std::uint64_t service) {
    return service >> 24 == service_prefix;
  }
  [[nodiscard]] static std::uint16_t port_of(std::uint64_t service) {
    return static_cast<std::uint16_t>(service);
  }
};

}  // namespace weft::wire
