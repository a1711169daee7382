// Messages of InfiniBand's communication management: InfiniBand Architecture Specification, volume
// 1, chapter 12 (the paragraphs below are of it), in management datagrams of chapter 13.
#include "wire/ib_cm.h"

#include <algorithm>

#include "wire/field.h"

namespace weft::wire {

namespace field::mad {
constexpr Field8 base_version{0};
constexpr Field8 management_class{base_version.end()};
constexpr Field8 class_version{management_class.end()};
constexpr Field8 method{class_version.end()};
constexpr Field16 status{method.end()};
constexpr Field16 class_specific{status.end()};
constexpr Field64 transaction{class_specific.end()};
constexpr Field16 attribute{transaction.end()};
constexpr Field16 reserved{attribute.end()};
constexpr Field32 modifier{reserved.end()};
static_assert(modifier.end() == MadHeader::header_bytes);
}  // namespace field::mad

// §12.6.5. Numbers of 24 bits share 32 bits with a byte behind them.
namespace field::request {
constexpr Field32 local_id{0};
constexpr FieldBytes<4> reserved{local_id.end()};
constexpr Field64 service{reserved.end()};
constexpr Field64 local_ca{service.end()};
constexpr FieldBytes<4> reserved_2{local_ca.end()};
constexpr Field32 queue_key{reserved_2.end()};
constexpr Field32 local_qp{queue_key.end()};
constexpr Field8 responder_resources{local_qp.at + 3};
constexpr Field32 local_ee{local_qp.end()};
constexpr Field8 initiator_depth{local_ee.at + 3};
constexpr Field32 remote_ee{local_ee.end()};
constexpr Field8 transport{remote_ee.at + 3};  // timeout (5 bits), transport (2), flow control
constexpr Field32 starting_psn{remote_ee.end()};
constexpr Field8 retry_count{starting_psn.at + 3};  // timeout (5 bits), count (3)
constexpr Field16 partition_key{starting_psn.end()};
constexpr Field8 path{partition_key.end()};  // MTU (4 bits), RDC exists, RNR retries (3)
constexpr Field8 options{path.end()};        // retries (4 bits), SRQ, extended transport (3)
constexpr FieldBytes<44> primary_path{options.end()};
constexpr Field8 acknowledgement_timeout{primary_path.end() - 1};  // five bits
constexpr FieldBytes<44> alternate_path{primary_path.end()};
static_assert(alternate_path.end() == CmRequest::header_bytes);
}  // namespace field::request

// §12.6.8
namespace field::reply {
constexpr Field32 local_id{0};
constexpr Field32 remote_id{local_id.end()};
constexpr Field32 queue_key{remote_id.end()};
constexpr Field32 local_qp{queue_key.end()};
constexpr Field32 local_ee{local_qp.end()};
constexpr Field32 starting_psn{local_ee.end()};
constexpr Field8 responder_resources{starting_psn.end()};
constexpr Field8 initiator_depth{responder_resources.end()};
constexpr Field8 target{initiator_depth.end()};
constexpr Field8 options{target.end()};  // RNR retries (3 bits), SRQ
constexpr Field64 local_ca{options.end()};
static_assert(local_ca.end() == CmReply::header_bytes);
}  // namespace field::reply

// §12.6.7
namespace field::reject {
constexpr Field32 local_id{0};
constexpr Field32 remote_id{local_id.end()};
constexpr Field8 rejected{remote_id.end()};  // two bits
constexpr Field8 information_bytes{rejected.end()};
constexpr Field16 reason{information_bytes.end()};
constexpr FieldBytes<72> information{reason.end()};
static_assert(information.end() == CmReject::header_bytes);
}  // namespace field::reject

// §12.6.9 to §12.6.11
namespace field::pair {
constexpr Field32 local_id{0};
constexpr Field32 remote_id{local_id.end()};
constexpr Field32 remote_qp{remote_id.end()};
static_assert(remote_qp.end() == CmPair::header_bytes);
}  // namespace field::pair

// §12.11.2
namespace field::service_reply {
constexpr Field32 request_id{0};
constexpr Field8 status{request_id.end()};
constexpr Field8 information_bytes{status.end()};
constexpr Field16 vendor{information_bytes.end()};
constexpr Field32 queue_pair{vendor.end()};
constexpr Field64 service{queue_pair.end()};
constexpr Field32 queue_key{service.end()};
constexpr FieldBytes<72> information{queue_key.end()};
static_assert(information.end() == CmServiceReply::header_bytes);
}  // namespace field::service_reply

namespace {

constexpr std::uint8_t base_version = 1;
// This is the default partition key; its upper bit means full membership.
constexpr std::uint16_t default_partition = 0xFFFF;
constexpr unsigned retry_mask = 7;

// A number of 24 bits, in front of a byte that is reserved or means something else.
std::uint32_t load_24(const std::byte* header, Field32 field) {
  return field.load(header) >> 8;
}

void store_24(std::byte* header, Field32 field, std::uint32_t value, std::uint8_t behind = 0) {
  field.store(header, value << 8 | behind);
}

// Clears a message before its fields are written: fields that are not kept go out as zero.
std::byte* cleared(MutableBytes out, std::size_t size) {
  std::fill_n(out.begin(), size, std::byte{0});
  return out.data();
}

std::uint8_t byte_of(unsigned value) {
  return static_cast<std::uint8_t>(value);
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

// The class and its version are not checked here, because all management classes share this header.
Result<MadHeader, WireError> MadHeader::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::mad;
  const std::byte* from = bytes.data();
  if (at::base_version.load(from) != base_version) return WireError::bad_version;
  return MadHeader{.management_class = at::management_class.load(from),
                   .class_version = at::class_version.load(from),
                   .method = at::method.load(from),
                   .transaction = at::transaction.load(from),
                   .attribute = CmAttribute{at::attribute.load(from)},
                   .status = at::status.load(from),
                   .modifier = at::modifier.load(from)};
}

void MadHeader::emit(MutableBytes out) const {
  namespace at = field::mad;
  std::byte* to = cleared(out, header_bytes);
  at::base_version.store(to, base_version);
  at::management_class.store(to, management_class);
  at::class_version.store(to, class_version);
  at::method.store(to, method);
  at::transaction.store(to, transaction);
  at::attribute.store(to, static_cast<std::uint16_t>(attribute));
  at::status.store(to, status);
  at::modifier.store(to, modifier);
}

// Codes 1 to 5 are 256 to 4096 bytes; others are reserved.
std::uint32_t CmRequest::path_mtu_bytes() const {
  return path_mtu_code >= 1 && path_mtu_code <= 5 ? 128U << path_mtu_code : 0;
}

std::int64_t CmRequest::answer_within_ns() const {
  const auto ns = [](std::uint8_t code) { return std::int64_t{4096} << (code & 31U); };
  return ns(response_timeout_code) + ns(acknowledgement_timeout_code);
}

Result<CmRequest, WireError> CmRequest::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::request;
  const std::byte* from = bytes.data();
  const unsigned path = at::path.load(from);
  const unsigned options = at::options.load(from);
  return CmRequest{
      .local_id = at::local_id.load(from),
      .service = at::service.load(from),
      .local_qp = load_24(from, at::local_qp),
      .responder_resources = at::responder_resources.load(from),
      .initiator_depth = at::initiator_depth.load(from),
      .starting_psn = load_24(from, at::starting_psn),
      .retry_count = byte_of(at::retry_count.load(from) & retry_mask),
      .path_mtu_code = byte_of(path >> 4),
      .rnr_retry_count = byte_of(path & retry_mask),
      .shared_receive_queue = (options & 8) != 0,
      .transport_code = byte_of(at::transport.load(from) >> 1 & 3U),
      .extended_transport_code = byte_of(options & 7),
      .response_timeout_code = byte_of(at::transport.load(from) >> 3),
      .acknowledgement_timeout_code = byte_of(at::acknowledgement_timeout.load(from) >> 3)};
}

void CmRequest::emit(MutableBytes out) const {
  namespace at = field::request;
  std::byte* to = cleared(out, header_bytes);
  at::local_id.store(to, local_id);
  at::service.store(to, service);
  store_24(to, at::local_qp, local_qp, responder_resources);
  store_24(to, at::local_ee, 0, initiator_depth);
  at::transport.store(to, byte_of(response_timeout_code << 3U | (transport_code & 3U) << 1));
  at::acknowledgement_timeout.store(to, byte_of(acknowledgement_timeout_code << 3U));
  store_24(to, at::starting_psn, starting_psn, byte_of(retry_count & retry_mask));
  // The only partition that the device knows.
  at::partition_key.store(to, default_partition);
  at::path.store(to, byte_of(path_mtu_code << 4U | (rnr_retry_count & retry_mask)));
  at::options.store(to, byte_of((shared_receive_queue ? 8U : 0U) | (extended_transport_code & 7U)));
}

Result<CmReply, WireError> CmReply::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::reply;
  const std::byte* from = bytes.data();
  const unsigned options = at::options.load(from);
  return CmReply{.local_id = at::local_id.load(from),
                 .remote_id = at::remote_id.load(from),
                 .local_qp = load_24(from, at::local_qp),
                 .starting_psn = load_24(from, at::starting_psn),
                 .responder_resources = at::responder_resources.load(from),
                 .initiator_depth = at::initiator_depth.load(from),
                 .rnr_retry_count = byte_of(options >> 5),
                 .shared_receive_queue = (options & 0x10) != 0};
}

void CmReply::emit(MutableBytes out) const {
  namespace at = field::reply;
  std::byte* to = cleared(out, header_bytes);
  at::local_id.store(to, local_id);
  at::remote_id.store(to, remote_id);
  store_24(to, at::local_qp, local_qp);
  store_24(to, at::starting_psn, starting_psn);
  at::responder_resources.store(to, responder_resources);
  at::initiator_depth.store(to, initiator_depth);
  at::options.store(
      to, byte_of((rnr_retry_count & retry_mask) << 5 | (shared_receive_queue ? 0x10U : 0U)));
}

Result<CmReject, WireError> CmReject::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::reject;
  const std::byte* from = bytes.data();
  return CmReject{.local_id = at::local_id.load(from),
                  .remote_id = at::remote_id.load(from),
                  .rejected = byte_of(at::rejected.load(from) >> 6),
                  .reason = at::reason.load(from)};
}

void CmReject::emit(MutableBytes out) const {
  namespace at = field::reject;
  std::byte* to = cleared(out, header_bytes);
  at::local_id.store(to, local_id);
  at::remote_id.store(to, remote_id);
  at::rejected.store(to, byte_of((rejected & 3U) << 6));
  at::reason.store(to, reason);
}

// Only a disconnect request has the queue pair. In the two other messages the private data begins
// in its place, so the field means nothing there.
Result<CmPair, WireError> CmPair::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::pair;
  const std::byte* from = bytes.data();
  return CmPair{.local_id = at::local_id.load(from),
                .remote_id = at::remote_id.load(from),
                .remote_qp = load_24(from, at::remote_qp)};
}

void CmPair::emit(MutableBytes out) const {
  namespace at = field::pair;
  std::byte* to = cleared(out, header_bytes);
  at::local_id.store(to, local_id);
  at::remote_id.store(to, remote_id);
  store_24(to, at::remote_qp, remote_qp);
}

Result<CmServiceReply, WireError> CmServiceReply::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::service_reply;
  const std::byte* from = bytes.data();
  return CmServiceReply{.request_id = at::request_id.load(from),
                        .status = at::status.load(from),
                        .queue_pair = load_24(from, at::queue_pair),
                        .service = at::service.load(from),
                        .queue_key = at::queue_key.load(from)};
}

void CmServiceReply::emit(MutableBytes out) const {
  namespace at = field::service_reply;
  std::byte* to = cleared(out, header_bytes);
  at::request_id.store(to, request_id);
  at::status.store(to, status);
  store_24(to, at::queue_pair, queue_pair);
  at::service.store(to, service);
  at::queue_key.store(to, queue_key);
}

}  // namespace weft::wire
