#include "capture/storage/nvme_wire.h"

#include <fmt/format.h>

#include "capture/text/fields_wire.h"
#include "capture/text/units.h"

namespace weft::capture {
namespace {

constexpr std::size_t command_bytes = 64;
constexpr std::size_t completion_bytes = 16;
constexpr std::size_t descriptor_end = 40;  // of the SGL descriptor, whose type is its last byte
constexpr std::uint8_t fabrics_opcode = 0x7F;
constexpr std::uint8_t fabrics_connect = 0x01;
// Types of SGL descriptors, with the subtype in the low half (NVM Express 1.4 §4.4).
constexpr std::uint8_t keyed = 0x40;
constexpr std::uint8_t keyed_invalidate = 0x4F;
constexpr std::uint8_t in_capsule = 0x01;

constexpr CodeName fabrics_commands[] = {
    {0x00, "property set"},           {0x01, "connect"},
    {0x04, "property get"},           {0x05, "authentication send"},
    {0x06, "authentication receive"}, {0x08, "disconnect"},
};
constexpr CodeName admin_commands[] = {
    {0x02, "get log page"},
    {0x06, "identify"},
    {0x08, "abort"},
    {0x09, "set features"},
    {0x0A, "get features"},
    {0x0C, "async event"},
    {0x0D, "namespace management"},
    {0x10, "firmware commit"},
    {0x11, "firmware download"},
    {0x14, "device self-test"},
    {0x15, "namespace attachment"},
    {0x18, "keep alive"},
    {0x19, "directive send"},
    {0x1A, "directive receive"},
    {0x1D, "management send"},
    {0x1E, "management receive"},
    {0x80, "format"},
    {0x81, "security send"},
    {0x82, "security receive"},
    {0x84, "sanitize"},
};
constexpr CodeName io_commands[] = {
    {0x00, "flush"},
    {0x01, "write"},
    {0x02, "read"},
    {0x04, "write uncorrectable"},
    {0x05, "compare"},
    {0x08, "write zeroes"},
    {0x09, "dataset management"},
    {0x0C, "verify"},
    {0x0D, "reservation register"},
    {0x0E, "reservation report"},
    {0x11, "reservation acquire"},
    {0x15, "reservation release"},
    {0x19, "copy"},
    {0x79, "zone management send"},
    {0x7A, "zone management receive"},
    {0x7D, "zone append"},
};

constexpr CodeName properties[] = {{0x00, "CAP"}, {0x08, "VS"}, {0x14, "CC"}, {0x1C, "CSTS"}};
constexpr CodeName identified[] = {
    {0x00, "namespace"},
    {0x01, "controller"},
    {0x02, "active namespaces"},
    {0x03, "namespace descriptors"},
    {0x05, "namespace of a command set"},
    {0x06, "controller of a command set"},
    {0x10, "allocated namespaces"},
    {0x13, "controllers"},
    {0x1C, "command sets"},
};
constexpr CodeName log_pages[] = {
    {0x01, "error information"},
    {0x02, "SMART"},
    {0x03, "firmware slots"},
    {0x04, "changed namespaces"},
    {0x05, "command effects"},
    {0x06, "device self-test"},
    {0x0C, "ANA"},
    {0x70, "discovery"},
    {0x80, "reservation"},
    {0x81, "sanitize"},
};
constexpr CodeName features[] = {
    {0x01, "arbitration"},          {0x02, "power management"}, {0x04, "temperature"},
    {0x05, "error recovery"},       {0x06, "volatile cache"},   {0x07, "number of queues"},
    {0x08, "interrupt coalescing"}, {0x0B, "async events"},     {0x0E, "timestamp"},
    {0x0F, "keep alive timer"},     {0x16, "host behavior"},    {0x81, "host identifier"},
};

// Status codes of type 0, of all commands (§4.5.1.2.1), and from 0x80 of the NVM command set.
constexpr CodeName generic_status[] = {
    {0x00, "OK"},
    {0x01, "invalid opcode"},
    {0x02, "invalid field"},
    {0x03, "command ID conflict"},
    {0x04, "data transfer error"},
    {0x05, "power loss"},
    {0x06, "internal error"},
    {0x07, "abort requested"},
    {0x08, "queue deleted"},
    {0x0B, "invalid namespace"},
    {0x0C, "command sequence error"},
    {0x0D, "invalid SGL segment"},
    {0x0E, "invalid number of SGLs"},
    {0x0F, "data SGL length invalid"},
    {0x11, "SGL type invalid"},
    {0x15, "operation denied"},
    {0x16, "SGL offset invalid"},
    {0x18, "inconsistent host ID"},
    {0x19, "keep alive expired"},
    {0x1A, "keep alive invalid"},
    {0x1D, "sanitize in progress"},
    {0x20, "write protected"},
    {0x21, "command interrupted"},
    {0x22, "transport error"},
    {0x80, "LBA out of range"},
    {0x81, "capacity exceeded"},
    {0x82, "namespace not ready"},
    {0x83, "reservation conflict"},
    {0x84, "format in progress"},
};
// Type 1, of Fabrics commands (NVM Express over Fabrics 1.1, figure 10).
constexpr CodeName fabrics_status[] = {
    {0x80, "incompatible format"},        {0x81, "controller busy"},
    {0x82, "connect: invalid parameter"}, {0x83, "connect: restart discovery"},
    {0x84, "connect: invalid host"},      {0x90, "discovery restart"},
    {0x91, "authentication required"},
};
// Type 1, of admin commands (§4.5.1.2.2), and from 0x80 of the NVM command set.
constexpr CodeName command_status[] = {
    {0x01, "invalid queue"},           {0x02, "invalid queue size"},
    {0x03, "abort limit exceeded"},    {0x05, "too many async events"},
    {0x09, "invalid log page"},        {0x0A, "invalid format"},
    {0x0D, "feature not saveable"},    {0x0E, "feature not changeable"},
    {0x0F, "feature of no namespace"}, {0x80, "conflicting attributes"},
    {0x81, "invalid protection"},      {0x82, "write to read-only range"},
};
// Type 2, of data (§4.5.1.2.3).
constexpr CodeName data_status[] = {
    {0x80, "write fault"},
    {0x81, "unrecovered read error"},
    {0x82, "guard check failed"},
    {0x83, "application tag check failed"},
    {0x84, "reference tag check failed"},
    {0x85, "compare failed"},
    {0x86, "access denied"},
    {0x87, "unwritten block"},
};
// Type 3, of the path (§4.5.1.2.4).
constexpr CodeName path_status[] = {
    {0x00, "internal path error"}, {0x01, "ANA persistent loss"},   {0x02, "ANA inaccessible"},
    {0x03, "ANA transition"},      {0x60, "controller path error"}, {0x70, "host path error"},
    {0x71, "aborted by host"},
};

std::string_view command_name(Bytes bytes, std::uint8_t opcode,
                              const std::optional<std::uint16_t>& queue) {
  if (opcode == fabrics_opcode) return name_of(fabrics_commands, field_8(bytes, 4).value_or(0xFF));
  if (!queue) return "command";  // the Connect of the queue was not captured
  return *queue == 0 ? name_of(admin_commands, opcode) : name_of(io_commands, opcode);
}

// The queue of a Connect command. Its size is counted from 0.
std::optional<NvmeQueue> queue_in(Bytes bytes) {
  const auto queue = field_le<std::uint16_t>(bytes, 42);
  const auto last_entry = field_le<std::uint16_t>(bytes, 44);
  if (!queue || !last_entry) return std::nullopt;
  return NvmeQueue{*queue, std::uint32_t{*last_entry} + 1};
}

void add_fabrics_subject(Bytes bytes, StorageCommand& command) {
  const std::uint8_t type = field_8(bytes, 4).value_or(0xFF);
  if (type == fabrics_connect) {
    if (const auto queue = queue_in(bytes)) {
      command.subject = fmt::format("queue {}, {} entries", queue->number, queue->entries);
    }
  } else if (name_of(fabrics_commands, type).starts_with("property")) {
    if (const auto offset = field_le<std::uint32_t>(bytes, 44)) {
      command.subject = name_of(properties, *offset);
    }
  }
}

void add_admin_subject(Bytes bytes, std::uint8_t opcode, StorageCommand& command) {
  const auto selector = field_8(bytes, 40);
  if (!selector) return;
  switch (opcode) {
    case 0x02:
      command.subject = name_of(log_pages, *selector);
      break;
    case 0x06:
      command.subject = name_of(identified, *selector);
      break;
    case 0x09:
    case 0x0A:
      command.subject = name_of(features, *selector);
      break;
    default:
      break;
  }
}

// The blocks of a command of the NVM command set.
void add_blocks(Bytes bytes, std::uint8_t opcode, StorageCommand& command) {
  command.unit = field_le<std::uint32_t>(bytes, 4);
  constexpr std::uint8_t dataset_management = 0x09;
  if (opcode == dataset_management) {
    const auto last_range = field_8(bytes, 40);
    if (last_range) command.subject = count_text(*last_range + 1U, "range");
    return;
  }
  constexpr std::uint8_t with_blocks[] = {0x01, 0x02, 0x04, 0x05, 0x08, 0x0C, 0x7D};
  if (std::ranges::find(with_blocks, opcode) == std::end(with_blocks)) return;
  command.block = field_le<std::uint64_t>(bytes, 40);
  if (const auto last_block = field_le<std::uint16_t>(bytes, 48)) command.blocks = *last_block + 1U;
}

// The length and key in the data pointer (§4.4).
void add_data(Bytes bytes, StorageCommand& command) {
  const std::uint8_t type = field_8(bytes, descriptor_end - 1).value_or(0);
  const auto length = field_le<std::uint32_t>(bytes, 32);
  if (!length) return;
  if (type == in_capsule) command.bytes = *length;
  if (type != keyed && type != keyed_invalidate) return;
  constexpr std::uint32_t length_mask = 0xFF'FFFF;  // the key follows after three bytes
  command.bytes = *length & length_mask;
  const auto key = field_le<std::uint32_t>(bytes, 35);
  if (key && command.bytes > 0) command.keys.push_back(*key);
}

}  // namespace

bool may_be_nvme_command(const StorageBytes& message) {
  if (message.wire_size < command_bytes || message.bytes.size() < descriptor_end) return false;
  const std::uint8_t flags = field_8(message.bytes, 1).value_or(0);
  const std::uint8_t type = field_8(message.bytes, descriptor_end - 1).value_or(0);
  return (flags & 0xC0U) == 0x40 &&
         (type == keyed || type == keyed_invalidate || type == in_capsule);
}

bool is_nvme_connect(const StorageBytes& message) {
  constexpr std::uint16_t record_format = 0;
  const Bytes bytes = message.bytes;
  return may_be_nvme_command(message) && field_8(bytes, 0) == fabrics_opcode &&
         field_8(bytes, 4) == fabrics_connect &&
         field_le<std::uint16_t>(bytes, 40) == record_format;
}

std::optional<NvmeQueue> nvme_connected_queue(const StorageBytes& message) {
  return is_nvme_connect(message) ? queue_in(message.bytes) : std::nullopt;
}

std::optional<std::uint16_t> nvme_requested_queue(Bytes private_data) {
  // Record format, queue, and the sizes of the host's receive and send queues, each of two bytes.
  // The last size is not zero, so at most one byte is missing.
  constexpr std::size_t shortest = 7;
  if (private_data.size() < shortest || field_le<std::uint16_t>(private_data, 0) != 0) {
    return std::nullopt;
  }
  return field_le<std::uint16_t>(private_data, 2);
}

bool may_be_nvme_completion(const StorageBytes& message) {
  return message.wire_size == completion_bytes && message.bytes.size() == completion_bytes;
}

std::uint16_t nvme_command_id(Bytes command) {
  return field_le<std::uint16_t>(command, 2).value_or(0);
}

std::uint16_t nvme_completed_id(Bytes completion) {
  return field_le<std::uint16_t>(completion, 12).value_or(0);
}

std::string nvme_status_text(std::uint32_t status, std::string_view command) {
  constexpr std::uint32_t code_mask = 0xFF;
  const std::uint32_t code = status & code_mask;
  const std::uint32_t type = status >> 8U;
  const bool of_fabrics =
      std::ranges::find(fabrics_commands, command, &CodeName::name) != std::end(fabrics_commands);
  const std::span<const CodeName> of_command =
      of_fabrics ? std::span<const CodeName>(fabrics_status) : command_status;
  const std::span<const CodeName> tables[] = {generic_status, of_command, data_status, path_status};
  const std::string_view name = type < std::size(tables) ? name_of(tables[type], code, "") : "";
  return name.empty() ? fmt::format("status {:#x} of type {}", code, type) : std::string(name);
}

StorageMessage decode_nvme_command(const StorageBytes& message, std::optional<std::uint16_t>& queue,
                                   MessageCounts& counts) {
  if (!may_be_nvme_command(message)) {
    ++counts["other"];
    return {};
  }
  const Bytes bytes = message.bytes;
  const auto connected = field_le<std::uint16_t>(bytes, 42);
  if (is_nvme_connect(message) && connected) queue = connected;
  const std::uint8_t opcode = field_8(bytes, 0).value_or(0);
  StorageMessage out;
  StorageCommand& command = out.command.emplace();
  command.protocol = StorageProtocol::nvme;
  command.id = nvme_command_id(bytes);
  command.name = command_name(bytes, opcode, queue);
  command.queue = queue;
  add_data(bytes, command);
  if (opcode == fabrics_opcode) {
    add_fabrics_subject(bytes, command);
  } else if (queue == 0) {
    add_admin_subject(bytes, opcode, command);
  } else if (queue) {
    add_blocks(bytes, opcode, command);
  }
  ++counts[command.name];
  return out;
}

StorageMessage decode_nvme_completion(const StorageBytes& message, MessageCounts& counts) {
  if (!may_be_nvme_completion(message)) {
    ++counts["other"];
    return {};
  }
  StorageMessage out;
  StorageAnswer& answer = out.answer.emplace();
  answer.id = nvme_completed_id(message.bytes);
  // The lowest bit is the phase tag, which fabrics do not use. Of the rest, the three highest bits
  // are hints to the host.
  constexpr std::uint32_t status_mask = 0x7FF;
  answer.status =
      static_cast<std::uint32_t>(*field_le<std::uint16_t>(message.bytes, 14) >> 1U) & status_mask;
  answer.failed = answer.status != 0;
  ++counts["completion"];
  if (answer.failed) ++counts["completion with an error"];
  return out;
}

}  // namespace weft::capture
