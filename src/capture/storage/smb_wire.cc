#include "capture/storage/smb_wire.h"

#include <algorithm>
#include <cstring>

#include "capture/storage/nt_status.h"
#include "capture/text/fields_wire.h"

namespace weft::capture {
namespace {

// --- SMB Direct ----------------------------------------------------------------------------------

constexpr std::uint16_t smbd_version = 0x0100;
constexpr std::size_t negotiate_request_bytes = 20;
constexpr std::size_t negotiate_response_bytes = 32;
constexpr std::size_t transfer_header_bytes = 24;  // with the padding before the data
constexpr std::size_t empty_transfer_bytes = 20;

std::uint16_t le16(Bytes bytes, std::size_t at) {
  return field_le<std::uint16_t>(bytes, at).value_or(0);
}
std::uint32_t le32(Bytes bytes, std::size_t at) {
  return field_le<std::uint32_t>(bytes, at).value_or(0);
}

// SMB Direct Negotiate Request: MS-SMBD §2.2.1.
bool is_negotiate_request(const StorageBytes& message) {
  const Bytes bytes = message.bytes;
  return message.wire_size == negotiate_request_bytes && bytes.size() == message.wire_size &&
         le16(bytes, 0) == smbd_version && le16(bytes, 2) >= smbd_version && le16(bytes, 4) == 0 &&
         le16(bytes, 6) != 0 && le32(bytes, 8) >= 128 && le32(bytes, 12) >= 128;
}

// SMB Direct Negotiate Response: MS-SMBD §2.2.2.
bool is_negotiate_response(const StorageBytes& message) {
  const Bytes bytes = message.bytes;
  return message.wire_size == negotiate_response_bytes && bytes.size() == message.wire_size &&
         le16(bytes, 0) == smbd_version && le16(bytes, 2) == smbd_version &&
         le16(bytes, 4) == smbd_version && le16(bytes, 6) == 0;
}

// --- SMB 2 ---------------------------------------------------------------------------------------

constexpr std::uint32_t smb2_magic = 0x424D53FE;        // "\xFESMB"
constexpr std::uint32_t encrypted_magic = 0x424D53FD;   // MS-SMB2 §2.2.41
constexpr std::uint32_t compressed_magic = 0x424D53FC;  // §2.2.42
constexpr std::size_t header_bytes = 64;
constexpr std::uint64_t notification_id = ~std::uint64_t{0};  // of messages without a request
constexpr std::uint32_t flag_response = 0x0000'0001;
constexpr std::uint32_t flag_related = 0x0000'0004;

// Command codes: §2.2.1.2.
enum class Code : std::uint16_t {
  tree_connect = 3,
  create = 5,
  close = 6,
  flush = 7,
  read = 8,
  write = 9,
  lock = 10,
  ioctl = 11,
  cancel = 12,
  query_directory = 14,
  change_notify = 15,
  query_info = 16,
  set_info = 17,
  oplock_break = 18,
};

constexpr CodeName smb2_commands[] = {
    {0, smb2_negotiate},        {1, "SMB2 SESSION_SETUP"},   {2, "SMB2 LOGOFF"},
    {3, "SMB2 TREE_CONNECT"},   {4, "SMB2 TREE_DISCONNECT"}, {5, "SMB2 CREATE"},
    {6, "SMB2 CLOSE"},          {7, "SMB2 FLUSH"},           {8, "SMB2 READ"},
    {9, "SMB2 WRITE"},          {10, "SMB2 LOCK"},           {11, "SMB2 IOCTL"},
    {12, "SMB2 CANCEL"},        {13, "SMB2 ECHO"},           {14, "SMB2 QUERY_DIRECTORY"},
    {15, "SMB2 CHANGE_NOTIFY"}, {16, "SMB2 QUERY_INFO"},     {17, "SMB2 SET_INFO"},
    {18, "SMB2 OPLOCK_BREAK"},
};

// Transfer that holds an SMB 2 message (MS-SMBD §2.2.3).
bool is_transfer_of_smb2(Bytes bytes) {
  constexpr std::size_t needed = transfer_header_bytes + 8;
  if (bytes.size() < needed || le32(bytes, 12) != transfer_header_bytes) return false;
  const std::uint32_t magic = le32(bytes, transfer_header_bytes);
  if (magic == encrypted_magic) return le16(bytes, 6) == 0 && le32(bytes, 16) > needed;
  return magic == smb2_magic && le16(bytes, transfer_header_bytes + 4) == header_bytes;
}

void append_utf8(std::string& text, std::uint32_t character) {
  const auto add = [&text](std::uint32_t byte) { text += static_cast<char>(byte); };
  constexpr std::uint32_t low = 0x3F;
  if (character < 0x80) {
    add(character);
  } else if (character < 0x800) {
    add(0xC0U | character >> 6U);
    add(0x80U | (character & low));
  } else if (character < 0x1'0000) {
    add(0xE0U | character >> 12U);
    add(0x80U | (character >> 6U & low));
    add(0x80U | (character & low));
  } else {
    add(0xF0U | character >> 18U);
    add(0x80U | (character >> 12U & low));
    add(0x80U | (character >> 6U & low));
    add(0x80U | (character & low));
  }
}

// A surrogate without its other half becomes the replacement character.
std::string from_utf16(Bytes text) {
  constexpr std::uint32_t replacement = 0xFFFD;
  const auto is_high = [](std::uint32_t unit) { return unit >> 10U == 0x36; };
  const auto is_low = [](std::uint32_t unit) { return unit >> 10U == 0x37; };
  std::string out;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2) {
    const std::uint32_t unit = le16(text, at);
    const std::uint32_t next = le16(text, at + 2);
    if (is_high(unit) && is_low(next)) {
      append_utf8(out, 0x1'0000 + ((unit & 0x3FFU) << 10U) + (next & 0x3FFU));
      at += 2;
    } else {
      append_utf8(out, is_high(unit) || is_low(unit) ? replacement : unit);
    }
  }
  return out;
}

// A name at an offset from the header of its message; both fields are at `field`.
std::string name_at(Bytes message, std::size_t field) {
  constexpr std::size_t most_bytes = 512;  // of a longer name the end is left out
  const std::size_t offset = le16(message, field);
  const std::size_t size = le16(message, field + 2);
  if (offset < header_bytes || offset > message.size() || size > message.size() - offset) return {};
  const std::string name = from_utf16(message.subspan(offset, std::min(size, most_bytes)));
  return size > most_bytes ? name + "…" : name;
}

// The keys in buffer descriptors (MS-SMBD §2.2.3.1) at an offset from the header.
void add_keys(Bytes message, std::size_t field, StorageCommand& command) {
  constexpr std::size_t descriptor_bytes = 16;
  const std::size_t offset = le16(message, field);
  const std::size_t size = le16(message, field + 2);
  if (offset < header_bytes) return;
  for (std::size_t at = 0; at + descriptor_bytes <= size; at += descriptor_bytes) {
    const auto key = field_le<std::uint32_t>(message, offset + at + 8);
    if (!key) return;
    command.keys.push_back(*key);
  }
}

// Where each kind of request has the identifier of its file, after the header; 0: nowhere.
std::size_t file_id_place(Code code) {
  switch (code) {
    case Code::close:
    case Code::flush:
    case Code::lock:
    case Code::ioctl:
    case Code::query_directory:
    case Code::change_notify:
    case Code::oplock_break:
      return 8;
    case Code::read:
    case Code::write:
    case Code::set_info:
      return 16;
    case Code::query_info:
      return 24;
    default:
      return 0;
  }
}

std::optional<SmbFileId> file_id_at(Bytes message, std::size_t at) {
  SmbFileId id{};
  if (message.size() < at + id.size()) return std::nullopt;
  std::ranges::copy(message.subspan(at, id.size()), id.begin());
  return id;
}

bool is_all_ones(const SmbFileId& id) {
  return std::ranges::all_of(id, [](std::byte one) { return one == std::byte{0xFF}; });
}

// READ (§2.2.19) and WRITE (§2.2.21). A WRITE by RDMA has no data in the message: the field for the
// remaining bytes has the length.
void decode_transfer_request(Bytes message, Code code, StorageCommand& command) {
  command.offset = field_le<std::uint64_t>(message, header_bytes + 8);
  command.bytes = le32(message, header_bytes + 4);
  const bool reads = code == Code::read;
  const std::uint32_t channel = le32(message, header_bytes + (reads ? 36 : 32));
  if (channel == 0) return;
  if (!reads) command.bytes = le32(message, header_bytes + 36);
  add_keys(message, header_bytes + (reads ? 44 : 40), command);
}

StorageCommand command_of(Bytes message, std::uint16_t number) {
  const Code code{number};
  StorageCommand command;
  command.protocol = StorageProtocol::smb_direct;
  command.id = field_le<std::uint64_t>(message, 24).value_or(0);
  command.name = name_of(smb2_commands, number);
  if (code == Code::read || code == Code::write) {
    decode_transfer_request(message, code, command);
  } else if (code == Code::create) {
    command.file = name_at(message, header_bytes + 44);
  } else if (code == Code::tree_connect) {
    command.file = name_at(message, header_bytes + 4);
  }
  return command;
}

StorageAnswer answer_of(Bytes message) {
  const std::uint32_t status = le32(message, 8);
  return {.id = field_le<std::uint64_t>(message, 24).value_or(0),
          .status = status,
          .failed = is_nt_failure(status),
          .interim = is_nt_pending(status),
          .text = nt_status_text(status)};
}

}  // namespace

bool is_smb_direct(const StorageBytes& message) {
  return is_negotiate_request(message) || is_transfer_of_smb2(message.bytes);
}

std::optional<SmbTransfer> decode_smb_direct(const StorageBytes& message, MessageCounts& counts) {
  const Bytes bytes = message.bytes;
  if (is_negotiate_request(message)) {
    ++counts["negotiate request"];
  } else if (is_negotiate_response(message)) {
    ++counts["negotiate response"];
  } else if (bytes.size() < empty_transfer_bytes) {
    ++counts["other"];
  } else if (le32(bytes, 16) == 0) {
    ++counts["transfer without data"];  // only grants credits, or is a keep-alive
  } else {
    ++counts["transfer"];
    const std::size_t at = std::min<std::size_t>(le32(bytes, 12), bytes.size());
    const Bytes data = bytes.subspan(at, std::min<std::size_t>(le32(bytes, 16), bytes.size() - at));
    return SmbTransfer{.data = data, .size = le32(bytes, 16), .remaining = le32(bytes, 8)};
  }
  return std::nullopt;
}

std::optional<SmbDirectCredits> smb_direct_credits(const StorageBytes& message) {
  const Bytes bytes = message.bytes;
  if (is_negotiate_request(message)) return std::nullopt;
  if (is_negotiate_response(message)) {
    return SmbDirectCredits{.granted = le16(bytes, 10), .opens = true};
  }
  if (bytes.size() < empty_transfer_bytes) return std::nullopt;
  return SmbDirectCredits{.granted = le16(bytes, 2), .has_data = le32(bytes, 16) > 0};
}

Smb2Message decode_smb2(Bytes chain, MessageCounts& counts) {
  Smb2Message out;
  const std::uint32_t magic = le32(chain, 0);
  if (magic == encrypted_magic) ++counts["SMB3 encrypted"];
  if (magic == compressed_magic) ++counts["SMB3 compressed"];
  if (magic != smb2_magic || chain.size() < header_bytes) return out;
  const std::uint16_t number = le16(chain, 12);
  const std::uint32_t flags = le32(chain, 16);
  const std::uint32_t next = le32(chain, 20);
  ++counts[name_of(smb2_commands, number)];
  out.readable = true;
  out.credits_charged = le16(chain, 6);
  out.credits_granted = (flags & flag_response) != 0 ? le16(chain, 14) : std::uint16_t{0};
  if (next >= header_bytes && next < chain.size()) out.next = next;
  const Bytes message = out.next == 0 ? chain : chain.first(out.next);
  const Code code{number};
  if (field_le<std::uint64_t>(message, 24) == notification_id || code == Code::cancel) return out;
  if ((flags & flag_response) != 0) {
    out.message.answer = answer_of(message);
    constexpr std::size_t created_file = header_bytes + 64;  // §2.2.14
    if (code == Code::create) out.file = file_id_at(message, created_file);
    return out;
  }
  out.message.command = command_of(message, number);
  if (const std::size_t place = file_id_place(code); place != 0) {
    out.file = file_id_at(message, header_bytes + place);
    out.uses_last_file = out.file && is_all_ones(*out.file) && (flags & flag_related) != 0;
  }
  return out;
}

}  // namespace weft::capture
