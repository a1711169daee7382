#include "wire/ib_cm.h"

#include <algorithm>
#include <array>

namespace weft::wire {
namespace {

std::uint32_t load_24(const std::byte* at) {
  return load_be<std::uint32_t>(at) >> 8;
}

void store_24(std::byte* at, std::uint32_t value, std::uint8_t behind) {
  store_be(at, value << 8 | behind);
}

// The bytes of a message that are about to be written.
std::byte* cleared(MutableBytes out, std::size_t size) {
  std::fill_n(out.begin(), size, std::byte{0});
  return out.data();
}

std::uint8_t load_byte(const std::byte* at) {
  return load_be<std::uint8_t>(at);
}

}  // namespace

const char* describe(CmAttribute attribute) {
  switch (attribute) {
    case CmAttribute::request:
      return "REQ";
    case CmAttribute::message_received:
      return "MRA";
    case CmAttribute::reject:
      return "REJ";
    case CmAttribute::reply:
      return "REP";
    case CmAttribute::ready_to_use:
      return "RTU";
    case CmAttribute::disconnect_request:
      return "DREQ";
    case CmAttribute::disconnect_reply:
      return "DREP";
    case CmAttribute::service_id_request:
      return "SIDR_REQ";
    case CmAttribute::service_id_reply:
      return "SIDR_REP";
    case CmAttribute::load_alternate_path:
      return "LAP";
    case CmAttribute::alternate_path_response:
      return "APR";
  }
  return "unknown message";
}

Result<MadHeader, WireError> MadHeader::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const std::byte* at = bytes.data();
  if (load_byte(at) != 1) return WireError::bad_version;
  return MadHeader{.management_class = load_byte(at + 1),
                   .class_version = load_byte(at + 2),
                   .method = load_byte(at + 3),
                   .transaction = load_be<std::uint64_t>(at + 8),
                   .attribute = CmAttribute{load_be<std::uint16_t>(at + 16)}};
}

void MadHeader::emit(MutableBytes out) const {
  std::byte* at = cleared(out, header_bytes);
  at[0] = std::byte{1};
  at[1] = std::byte{management_class};
  at[2] = std::byte{class_version};
  at[3] = std::byte{method};
  store_be(at + 8, transaction);
  store_be(at + 16, static_cast<std::uint16_t>(attribute));
}

std::uint32_t CmRequest::path_mtu_bytes() const {
  return path_mtu_code >= 1 && path_mtu_code <= 5 ? 128U << path_mtu_code : 0;
}

Result<CmRequest, WireError> CmRequest::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const std::byte* at = bytes.data();
  return CmRequest{.local_id = load_be<std::uint32_t>(at),
                   .service = load_be<std::uint64_t>(at + 8),
                   .local_qp = load_24(at + 32),
                   .responder_resources = load_byte(at + 35),
                   .initiator_depth = load_byte(at + 39),
                   .starting_psn = load_24(at + 44),
                   .retry_count = static_cast<std::uint8_t>(load_byte(at + 47) & 7),
                   .path_mtu_code = static_cast<std::uint8_t>(load_byte(at + 50) >> 4),
                   .rnr_retry_count = static_cast<std::uint8_t>(load_byte(at + 50) & 7),
                   .shared_receive_queue = (load_byte(at + 51) & 8) != 0,
                   .transport_code = static_cast<std::uint8_t>(load_byte(at + 43) >> 1 & 3),
                   .extended_transport_code = static_cast<std::uint8_t>(load_byte(at + 51) & 7)};
}

void CmRequest::emit(MutableBytes out) const {
  std::byte* at = cleared(out, header_bytes);
  store_be(at, local_id);
  store_be(at + 8, service);
  store_24(at + 32, local_qp, responder_resources);
  store_24(at + 36, 0, initiator_depth);
  at[43] = static_cast<std::byte>((transport_code & 3) << 1);
  store_24(at + 44, starting_psn, retry_count & 7);
  store_be(at + 48, std::uint16_t{0xFFFF});  // the default partition
  at[50] = static_cast<std::byte>(path_mtu_code << 4 | (rnr_retry_count & 7));
  at[51] = static_cast<std::byte>((shared_receive_queue ? 8 : 0) | (extended_transport_code & 7));
}

Result<CmReply, WireError> CmReply::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const std::byte* at = bytes.data();
  return CmReply{.local_id = load_be<std::uint32_t>(at),
                 .remote_id = load_be<std::uint32_t>(at + 4),
                 .local_qp = load_24(at + 12),
                 .starting_psn = load_24(at + 20),
                 .responder_resources = load_byte(at + 24),
                 .initiator_depth = load_byte(at + 25),
                 .rnr_retry_count = static_cast<std::uint8_t>(load_byte(at + 27) >> 5),
                 .shared_receive_queue = (load_byte(at + 27) & 0x10) != 0};
}

void CmReply::emit(MutableBytes out) const {
  std::byte* at = cleared(out, header_bytes);
  store_be(at, local_id);
  store_be(at + 4, remote_id);
  store_24(at + 12, local_qp, 0);
  store_24(at + 20, starting_psn, 0);
  at[24] = std::byte{responder_resources};
  at[25] = std::byte{initiator_depth};
  at[27] = static_cast<std::byte>((rnr_retry_count & 7) << 5 | (shared_receive_queue ? 0x10 : 0));
}

Result<CmReject, WireError> CmReject::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const std::byte* at = bytes.data();
  return CmReject{.local_id = load_be<std::uint32_t>(at),
                  .remote_id = load_be<std::uint32_t>(at + 4),
                  .rejected = static_cast<std::uint8_t>(load_byte(at + 8) >> 6),
                  .reason = load_be<std::uint16_t>(at + 10)};
}

void CmReject::emit(MutableBytes out) const {
  std::byte* at = cleared(out, header_bytes);
  store_be(at, local_id);
  store_be(at + 4, remote_id);
  at[8] = static_cast<std::byte>((rejected & 3) << 6);
  store_be(at + 10, reason);
}

Result<CmPair, WireError> CmPair::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const std::byte* at = bytes.data();
  return CmPair{.local_id = load_be<std::uint32_t>(at),
                .remote_id = load_be<std::uint32_t>(at + 4),
                .remote_qp = load_24(at + 8)};
}

void CmPair::emit(MutableBytes out) const {
  std::byte* at = cleared(out, header_bytes);
  store_be(at, local_id);
  store_be(at + 4, remote_id);
  store_24(at + 8, remote_qp, 0);
}

Result<CmServiceReply, WireError> CmServiceReply::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const std::byte* at = bytes.data();
  return CmServiceReply{.request_id = load_be<std::uint32_t>(at),
                        .status = load_byte(at + 4),
                        .queue_pair = load_24(at + 8),
                        .service = load_be<std::uint64_t>(at + 12),
                        .queue_key = load_be<std::uint32_t>(at + 20)};
}

void CmServiceReply::emit(MutableBytes out) const {
  std::byte* at = cleared(out, header_bytes);
  store_be(at, request_id);
  at[4] = std::byte{status};
  store_24(at + 8, queue_pair, 0);
  store_be(at + 12, service);
  store_be(at + 20, queue_key);
}

}  // namespace weft::wire
