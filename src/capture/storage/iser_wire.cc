#include "capture/storage/iser_wire.h"

#include <fmt/format.h>

#include "capture/storage/scsi_wire.h"
#include "capture/text/fields_wire.h"

namespace weft::capture {
namespace {

// The iSER header for control-type PDUs, with the addresses of InfiniBand's form (RFC 7145 §9.2 and
// its expanded header): flags, write STag and address, read STag and address.
constexpr std::size_t header_bytes = 28;
constexpr std::size_t segment_bytes = 48;  // the basic header segment of a PDU
constexpr std::uint8_t control_type = 0x10;
constexpr std::uint8_t write_valid = 0x08;
constexpr std::uint8_t read_valid = 0x04;
constexpr std::uint8_t opcode_mask = 0x3F;  // the bit above marks immediate delivery
constexpr std::uint32_t no_tag = 0xFFFF'FFFF;

// Codes of PDUs: RFC 7143 §11.2.1.2.
constexpr std::uint8_t scsi_command = 0x01;
constexpr std::uint8_t scsi_response = 0x21;
constexpr std::uint8_t from_target = 0x20;
constexpr CodeName pdus[] = {
    {0x00, "NOP-Out"},
    {0x01, "SCSI Command"},
    {0x02, "Task Management"},
    {0x03, "Login"},
    {0x04, "Text"},
    {0x05, "Data-Out"},
    {0x06, "Logout"},
    {0x20, "NOP-In"},
    {0x21, "SCSI Response"},
    {0x22, "Task Management Response"},
    {0x23, "Login Response"},
    {0x24, "Text Response"},
    {0x25, "Data-In"},
    {0x26, "Logout Response"},
    {0x31, "R2T"},
    {0x32, "Async Message"},
    {0x3F, "Reject"},
};

std::uint8_t opcode_of(Bytes pdu) {
  return field_8(pdu, 0).value_or(0) & opcode_mask;
}

// The length of the data segment: three bytes after that of the additional headers.
std::optional<std::uint32_t> data_bytes(Bytes pdu) {
  constexpr std::uint32_t length_mask = 0xFF'FFFF;
  const auto lengths = field_be<std::uint32_t>(pdu, 4);
  if (!lengths) return std::nullopt;
  return *lengths & length_mask;
}

bool is_header(Bytes bytes) {
  const auto first = field_be<std::uint32_t>(bytes, 0);
  constexpr std::uint32_t defined = 0xFF00'0000;
  if (!first || (*first & ~defined) != 0) return false;
  const auto flags = static_cast<std::uint8_t>(*first >> 24U);
  if ((flags & ~(write_valid | read_valid)) != control_type) return false;
  const bool write_set = field_be<std::uint32_t>(bytes, 4).value_or(0) != 0;
  const bool read_set = field_be<std::uint32_t>(bytes, 16).value_or(0) != 0;
  return ((flags & write_valid) != 0 || !write_set) && ((flags & read_valid) != 0 || !read_set);
}

StorageCommand command_of(Bytes header, Bytes pdu, std::uint8_t opcode) {
  StorageCommand command;
  command.protocol = StorageProtocol::iser;
  command.id = field_be<std::uint32_t>(pdu, 16).value_or(no_tag);
  command.name = name_of(pdus, opcode);
  if (opcode != scsi_command) return command;
  decode_lun(pdu.subspan(8), command);
  command.bytes = field_be<std::uint32_t>(pdu, 20).value_or(0);
  if (pdu.size() > 32) decode_cdb(pdu.subspan(32), command);
  const std::uint8_t flags = field_8(header, 0).value_or(0);
  if ((flags & write_valid) != 0) command.keys.push_back(*field_be<std::uint32_t>(header, 4));
  if ((flags & read_valid) != 0) command.keys.push_back(*field_be<std::uint32_t>(header, 16));
  return command;
}

// The sense data of a SCSI Response follow in the data segment, after their length (§11.4.7.2).
Bytes sense_of(Bytes pdu) {
  constexpr std::size_t sense_at = segment_bytes + 2;
  return pdu.size() > sense_at ? pdu.subspan(sense_at) : Bytes();
}

StorageAnswer answer_of(Bytes pdu, std::uint8_t opcode) {
  constexpr std::uint8_t login_response = 0x23;
  constexpr std::uint8_t logout_response = 0x26;
  constexpr std::uint8_t management_response = 0x22;
  StorageAnswer answer;
  answer.id = field_be<std::uint32_t>(pdu, 16).value_or(no_tag);
  answer.text = "OK";
  if (opcode == scsi_response) {
    const std::uint8_t response = field_8(pdu, 2).value_or(0);
    const std::uint8_t status = field_8(pdu, 3).value_or(0);
    answer.status = status;
    answer.failed = response != 0 || status != 0;
    answer.text = response != 0 ? fmt::format("iSCSI response {:#x}", response)
                                : scsi_status_text(status, sense_of(pdu));
  } else if (opcode == login_response) {
    answer.status = field_be<std::uint16_t>(pdu, 36).value_or(0);
    answer.failed = answer.status != 0;
    if (answer.failed) answer.text = fmt::format("login status {:#06x}", answer.status);
  } else if (opcode == logout_response || opcode == management_response) {
    answer.status = field_8(pdu, 2).value_or(0);
    answer.failed = answer.status != 0;
    if (answer.failed) answer.text = fmt::format("response {:#x}", answer.status);
  }
  return answer;
}

// PDUs that are answered by a PDU with the same task tag, and the answers.
bool is_request(std::uint8_t opcode) {
  constexpr std::uint8_t all[] = {0x00, 0x01, 0x02, 0x03, 0x04, 0x06};
  return std::ranges::find(all, opcode) != std::end(all);
}

}  // namespace

bool is_iser(const StorageBytes& message) {
  constexpr std::uint32_t alignment = 4;
  const Bytes bytes = message.bytes;
  if (bytes.size() < header_bytes + 20 || !is_header(bytes)) return false;
  const Bytes pdu = bytes.subspan(header_bytes);
  if (name_of(pdus, opcode_of(pdu), "").empty()) return false;
  // The target must not set the bit for immediate delivery, nor anything the highest bit.
  const std::uint8_t first = *field_8(pdu, 0);
  if ((first & 0x80U) != 0 || ((first & from_target) != 0 && (first & 0x40U) != 0)) return false;
  const std::uint64_t additional = std::uint64_t{field_8(pdu, 4).value_or(0)} * alignment;
  const std::uint64_t data = data_bytes(pdu).value_or(0);
  const std::uint64_t padded = (data + alignment - 1) / alignment * alignment;
  const std::uint64_t headers = header_bytes + segment_bytes + additional;
  return message.wire_size == headers + data || message.wire_size == headers + padded;
}

StorageMessage decode_iser(const StorageBytes& message, MessageCounts& counts) {
  if (message.bytes.size() < header_bytes + 20 || !is_header(message.bytes)) {
    ++counts["other"];
    return {};
  }
  const Bytes header = message.bytes.first(header_bytes);
  const Bytes pdu = message.bytes.subspan(header_bytes);
  const std::uint8_t opcode = opcode_of(pdu);
  ++counts[name_of(pdus, opcode)];
  StorageMessage out;
  // A NOP without a task tag wants no answer.
  if (field_be<std::uint32_t>(pdu, 16) == no_tag) return out;
  if (is_request(opcode)) {
    out.command = command_of(header, pdu, opcode);
    if (opcode == scsi_command) ++counts[out.command->name];
  } else if ((opcode & from_target) != 0 && is_request(opcode & ~from_target)) {
    out.answer = answer_of(pdu, opcode);
  }
  return out;
}

}  // namespace weft::capture
