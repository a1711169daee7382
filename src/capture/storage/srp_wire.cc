#include "capture/storage/srp_wire.h"

#include <fmt/format.h>

#include "capture/storage/scsi_wire.h"
#include "capture/text/fields_wire.h"

namespace weft::capture {
namespace {

constexpr std::uint8_t task_management = 0x01;
constexpr std::uint8_t command_unit = 0x02;
constexpr std::uint8_t response_unit = 0xC1;
constexpr CodeName units[] = {
    {0x00, "SRP_LOGIN_REQ"}, {0x01, "SRP_TSK_MGMT"}, {0x02, "SRP_CMD"},
    {0x03, "SRP_I_LOGOUT"},  {0x41, "SRP_CRED_RSP"}, {0x42, "SRP_AER_RSP"},
    {0x80, "SRP_T_LOGOUT"},  {0x81, "SRP_CRED_REQ"}, {0x82, "SRP_AER_REQ"},
    {0xC0, "SRP_LOGIN_RSP"}, {0xC1, "SRP_RSP"},      {0xC2, "SRP_LOGIN_REJ"},
};

// Response codes of SRP (§6.9), which come instead of a status of SCSI.
constexpr CodeName responses[] = {
    {0x02, "REQUEST FIELDS INVALID"},
    {0x04, "TASK MANAGEMENT FUNCTION NOT SUPPORTED"},
    {0x05, "TASK MANAGEMENT FUNCTION FAILED"},
};

constexpr std::size_t tag_at = 8;
constexpr std::size_t lun_at = 20;
constexpr std::size_t cdb_at = 32;
constexpr std::size_t command_bytes = 48;
constexpr std::size_t direct_bytes = 16;        // a memory descriptor: address, key, length
constexpr std::size_t indirect_bytes = 16 + 4;  // that of the table, and the length in all

// Formats of data buffer descriptors; Linux has added the last one.
enum class Format : std::uint8_t { none, direct, indirect, immediate };

struct Buffers {
  Format out = Format::none;
  Format in = Format::none;
  std::uint8_t out_count = 0;  // descriptors of an indirect table that are in the message
  std::uint8_t in_count = 0;
  std::size_t at = 0;  // of the first descriptor
};

std::optional<Buffers> buffers_of(Bytes bytes) {
  const auto formats = field_8(bytes, 5);
  const auto additional = field_8(bytes, 31);
  constexpr std::uint8_t last = static_cast<std::uint8_t>(Format::immediate);
  if (!formats || !additional || (*formats >> 4U) > last || (*formats & 0xFU) > last) {
    return std::nullopt;
  }
  constexpr std::uint8_t length_mask = 0xFC;  // of additional CDB bytes, a multiple of 4
  return Buffers{.out = static_cast<Format>(*formats >> 4U),
                 .in = static_cast<Format>(*formats & 0xFU),
                 .out_count = *field_8(bytes, 6),
                 .in_count = *field_8(bytes, 7),
                 .at = command_bytes + (*additional & length_mask)};
}

std::size_t size_of(Format format, std::uint8_t count) {
  switch (format) {
    case Format::direct:
      return direct_bytes;
    case Format::indirect:
      return indirect_bytes + count * direct_bytes;
    default:
      return 0;
  }
}

void add_key(Bytes bytes, std::size_t descriptor, StorageCommand& command) {
  if (const auto key = field_be<std::uint32_t>(bytes, descriptor + 8)) command.keys.push_back(*key);
}

// Adds the keys and the length of one direction, and returns where its descriptors end.
std::size_t add_buffer(Bytes bytes, std::size_t at, Format format, std::uint8_t count,
                       StorageCommand& command) {
  if (format == Format::direct) {
    add_key(bytes, at, command);
    command.bytes += field_be<std::uint32_t>(bytes, at + 12).value_or(0);
  } else if (format == Format::indirect) {
    add_key(bytes, at, command);  // of the table
    command.bytes += field_be<std::uint32_t>(bytes, at + direct_bytes).value_or(0);
    for (std::size_t i = 0; i < count; ++i) {
      add_key(bytes, at + indirect_bytes + i * direct_bytes, command);
    }
  }
  return at + size_of(format, count);
}

StorageCommand command_of(Bytes bytes, std::uint8_t unit) {
  StorageCommand command;
  command.protocol = StorageProtocol::srp;
  command.id = *field_be<std::uint64_t>(bytes, tag_at);
  command.name = name_of(units, unit);
  if (bytes.size() > lun_at) decode_lun(bytes.subspan(lun_at), command);
  if (unit == task_management) return command;
  if (bytes.size() > cdb_at) decode_cdb(bytes.subspan(cdb_at), command);
  const auto buffers = buffers_of(bytes);
  if (!buffers) return command;
  const std::size_t next =
      add_buffer(bytes, buffers->at, buffers->out, buffers->out_count, command);
  add_buffer(bytes, next, buffers->in, buffers->in_count, command);
  return command;
}

std::string text_of(std::uint8_t response) {
  const std::string_view name = name_of(responses, response, "");
  return name.empty() ? fmt::format("response code {:#04x}", response) : std::string(name);
}

StorageAnswer answer_of(Bytes bytes) {
  constexpr std::size_t fixed_bytes = 36;  // response data follow, then sense data
  const std::uint8_t flags = field_8(bytes, 18).value_or(0);
  const std::uint8_t status = field_8(bytes, 19).value_or(0);
  constexpr std::uint8_t response_valid = 0x01;
  constexpr std::uint8_t sense_valid = 0x02;
  const std::uint64_t response_bytes =
      (flags & response_valid) != 0 ? field_be<std::uint32_t>(bytes, 32).value_or(0) : 0;
  constexpr std::size_t response_code_at = fixed_bytes + 3;
  const std::uint8_t response =
      response_bytes >= 4 ? field_8(bytes, response_code_at).value_or(0) : std::uint8_t{0};
  const std::uint64_t id = *field_be<std::uint64_t>(bytes, tag_at);
  if (response != 0)
    return {.id = id, .status = response, .failed = true, .text = text_of(response)};
  Bytes sense;
  if ((flags & sense_valid) != 0 && bytes.size() > fixed_bytes + response_bytes) {
    sense = bytes.subspan(fixed_bytes + response_bytes);
  }
  return {.id = id,
          .status = status,
          .failed = status != 0,
          .interim = false,
          .text = scsi_status_text(status, sense)};
}

bool is_zero(Bytes bytes, std::size_t at, std::size_t size) {
  return std::ranges::all_of(bytes.subspan(at, size),
                             [](std::byte one) { return one == std::byte{}; });
}

}  // namespace

bool is_srp_command(const StorageBytes& message) {
  const Bytes bytes = message.bytes;
  if (bytes.size() < cdb_at + 1 || field_8(bytes, 0) != command_unit) return false;
  // Reserved fields (§6.8).
  if (!is_zero(bytes, 2, 3) || !is_zero(bytes, 16, 4) || !is_zero(bytes, 28, 1) ||
      !is_zero(bytes, 30, 1)) {
    return false;
  }
  const auto buffers = buffers_of(bytes);
  if (!buffers) return false;
  const std::uint64_t size = buffers->at + size_of(buffers->out, buffers->out_count) +
                             size_of(buffers->in, buffers->in_count);
  const bool immediate = buffers->out == Format::immediate || buffers->in == Format::immediate;
  return immediate ? message.wire_size > size : message.wire_size == size;
}

StorageMessage decode_srp(const StorageBytes& message, MessageCounts& counts) {
  const Bytes bytes = message.bytes;
  const auto unit = field_8(bytes, 0);
  if (!unit || bytes.size() < tag_at + 8) {
    ++counts["other"];
    return {};
  }
  ++counts[name_of(units, *unit)];
  StorageMessage out;
  if (*unit == command_unit || *unit == task_management) {
    out.command = command_of(bytes, *unit);
    if (*unit == command_unit && !out.command->name.empty()) ++counts[out.command->name];
  } else if (*unit == response_unit) {
    out.answer = answer_of(bytes);
  }
  return out;
}

}  // namespace weft::capture
