#include "capture/findings/upper_protocols.h"

#include <algorithm>
#include <span>

namespace weft::capture {
namespace {

// Sends of a connection that are examined before the search is given up.
constexpr unsigned max_examined_messages = 64;

struct Name {
  std::uint32_t code;
  std::string_view name;
};

std::string_view name_of(std::span<const Name> names, std::uint32_t code) {
  const auto found = std::ranges::find(names, code, &Name::code);
  return found == names.end() ? "other" : found->name;
}

std::uint16_t le16(Bytes bytes, std::size_t at) {
  return load_le<std::uint16_t>(bytes.data() + at);
}

std::uint32_t le32(Bytes bytes, std::size_t at) {
  return load_le<std::uint32_t>(bytes.data() + at);
}

// --- SMB Direct ----------------------------------------------------------------------------------

constexpr std::uint16_t smbd_version = 0x0100;
constexpr std::size_t negotiate_request_bytes = 20;
constexpr std::size_t negotiate_response_bytes = 32;
constexpr std::size_t transfer_header_bytes = 24;  // with the padding before the data
constexpr std::size_t empty_transfer_bytes = 20;
constexpr std::uint32_t smb2_magic = 0x424D53FE;  // "\xFESMB"
constexpr std::uint32_t smb3_encrypted_magic = 0x424D53FD;
constexpr std::uint16_t smb2_header_bytes = 64;

// Command codes: MS-SMB2 §2.2.1.2.
constexpr Name smb2_commands[] = {
    {0, "SMB2 NEGOTIATE"},      {1, "SMB2 SESSION_SETUP"},   {2, "SMB2 LOGOFF"},
    {3, "SMB2 TREE_CONNECT"},   {4, "SMB2 TREE_DISCONNECT"}, {5, "SMB2 CREATE"},
    {6, "SMB2 CLOSE"},          {7, "SMB2 FLUSH"},           {8, "SMB2 READ"},
    {9, "SMB2 WRITE"},          {10, "SMB2 LOCK"},           {11, "SMB2 IOCTL"},
    {12, "SMB2 CANCEL"},        {13, "SMB2 ECHO"},           {14, "SMB2 QUERY_DIRECTORY"},
    {15, "SMB2 CHANGE_NOTIFY"}, {16, "SMB2 QUERY_INFO"},     {17, "SMB2 SET_INFO"},
    {18, "SMB2 OPLOCK_BREAK"},
};

// SMB Direct Negotiate Request: MS-SMBD §2.2.1.
bool is_negotiate_request(Bytes bytes, bool last) {
  return last && bytes.size() == negotiate_request_bytes && le16(bytes, 0) == smbd_version &&
         le16(bytes, 2) >= smbd_version && le16(bytes, 4) == 0 && le16(bytes, 6) != 0 &&
         le32(bytes, 8) >= 128 && le32(bytes, 12) >= 128;
}

// SMB Direct Negotiate Response: MS-SMBD §2.2.2.
bool is_negotiate_response(Bytes bytes, bool last) {
  return last && bytes.size() == negotiate_response_bytes && le16(bytes, 0) == smbd_version &&
         le16(bytes, 2) == smbd_version && le16(bytes, 4) == smbd_version && le16(bytes, 6) == 0;
}

// SMB Direct Data Transfer (MS-SMBD §2.2.3) that holds an SMB 2 message.
bool is_transfer_of_smb2(Bytes bytes) {
  constexpr std::size_t needed = transfer_header_bytes + 8;
  if (bytes.size() < needed || le32(bytes, 12) != transfer_header_bytes) return false;
  const std::uint32_t magic = le32(bytes, transfer_header_bytes);
  if (magic == smb3_encrypted_magic) return le16(bytes, 6) == 0 && le32(bytes, 16) > needed;
  return magic == smb2_magic && le16(bytes, transfer_header_bytes + 4) == smb2_header_bytes;
}

// A response proves nothing that its request did not, so only requests and transfers are tested.
bool is_smb_direct(const SendPart& part) {
  return is_negotiate_request(part.bytes, part.last) || is_transfer_of_smb2(part.bytes);
}

// Counts a message by its type, and the SMB 2 command in it by its name.
void count_smb_direct(MessageCounts& messages, const SendPart& part) {
  const Bytes bytes = part.bytes;
  if (is_negotiate_request(bytes, part.last)) {
    ++messages["negotiate request"];
  } else if (is_negotiate_response(bytes, part.last)) {
    ++messages["negotiate response"];
  } else if (bytes.size() < empty_transfer_bytes) {
    ++messages["other"];
  } else if (le32(bytes, 16) == 0) {
    ++messages["transfer without data"];  // only grants credits, or is a keep-alive
  } else {
    ++messages["transfer"];
    if (!is_transfer_of_smb2(bytes)) return;
    const bool plain = le32(bytes, transfer_header_bytes) == smb2_magic;
    constexpr std::size_t command_at = transfer_header_bytes + 12;
    if (!plain) {
      ++messages["SMB3 encrypted"];
    } else if (bytes.size() >= command_at + 2) {
      ++messages[name_of(smb2_commands, le16(bytes, command_at))];
    }
  }
}

// --- NVMe over RDMA ------------------------------------------------------------------------------

constexpr std::size_t command_bytes = 64;
constexpr std::size_t completion_bytes = 16;
constexpr std::uint8_t fabrics_opcode = 0x7F;
constexpr std::uint8_t fabrics_connect = 0x01;
constexpr unsigned matches_wanted = 4;

constexpr Name fabrics_commands[] = {
    {0x00, "property set"},           {0x01, "connect"},
    {0x04, "property get"},           {0x05, "authentication send"},
    {0x06, "authentication receive"}, {0x08, "disconnect"},
};
constexpr Name admin_commands[] = {
    {0x02, "get log page"}, {0x06, "identify"},    {0x08, "abort"},      {0x09, "set features"},
    {0x0A, "get features"}, {0x0C, "async event"}, {0x18, "keep alive"},
};
constexpr Name io_commands[] = {
    {0x00, "flush"},
    {0x01, "write"},
    {0x02, "read"},
    {0x04, "write uncorrectable"},
    {0x05, "compare"},
    {0x08, "write zeroes"},
    {0x09, "dataset management"},
    {0x0D, "reservation register"},
    {0x0E, "reservation report"},
    {0x11, "reservation acquire"},
    {0x15, "reservation release"},
};

std::uint8_t byte_at(Bytes bytes, std::size_t at) {
  return std::to_integer<std::uint8_t>(bytes[at]);
}

// Tests the data pointer of a command. NVMe over Fabrics requires SGLs, with a keyed descriptor or
// an offset into the capsule.
bool may_be_command(Bytes bytes) {
  if (bytes.size() < command_bytes) return false;
  const std::uint8_t descriptor = byte_at(bytes, 39);
  return (byte_at(bytes, 1) & 0xC0U) == 0x40 &&
         (descriptor == 0x40 || descriptor == 0x4F || descriptor == 0x01);
}

// The Connect command is the first one on each queue, so it identifies the protocol.
bool is_connect(Bytes bytes) {
  constexpr std::uint16_t record_format = 0;
  return may_be_command(bytes) && byte_at(bytes, 0) == fabrics_opcode &&
         byte_at(bytes, 4) == fabrics_connect && le16(bytes, 40) == record_format;
}

// I/O and admin queues use the same opcodes for different commands, so the type of the queue must
// be known.
std::string_view command_name(Bytes bytes, bool admin, bool input_output) {
  const std::uint8_t opcode = byte_at(bytes, 0);
  if (opcode == fabrics_opcode) return name_of(fabrics_commands, byte_at(bytes, 4));
  if (admin) return name_of(admin_commands, opcode);
  if (input_output) return name_of(io_commands, opcode);
  return "command";  // the Connect of the queue was not captured
}

}  // namespace

const char* to_string(UpperProtocol protocol) {
  return protocol == UpperProtocol::nvme ? "NVMe over RDMA" : "SMB Direct";
}

// Recognises NVMe by a Connect command, or by several completions that match commands. A completion
// (16 bytes) has the id of its command at offset 12, a command at offset 2.
bool UpperProtocols::recognise_nvme(State& state, const Origin& origin, const SendPart& part) {
  if (origin.side == Side::a) {
    if (is_connect(part.bytes)) return true;
    if (!may_be_command(part.bytes)) return false;
    NvmeState& nvme = state.nvme;
    nvme.commands[nvme.next_command] = le16(part.bytes, 2);
    nvme.next_command = (nvme.next_command + 1) % nvme.commands.size();
    nvme.commands_seen = std::min(nvme.commands_seen + 1, nvme.commands.size());
    return false;
  }
  NvmeState& nvme = state.nvme;
  if (!part.last || part.bytes.size() != completion_bytes || nvme.commands_seen == 0) return false;
  const auto end = nvme.commands.begin() + static_cast<std::ptrdiff_t>(nvme.commands_seen);
  if (std::find(nvme.commands.begin(), end, le16(part.bytes, 12)) == end) return false;
  return ++nvme.matched == matches_wanted;
}

// Examines one Send, and gives up after patience_messages without a match.
void UpperProtocols::recognise(State& state, const Origin& origin, const SendPart& part) {
  if (is_smb_direct(part)) {
    state.recognised = true;
    state.traffic.protocol = UpperProtocol::smb_direct;
  } else if (recognise_nvme(state, origin, part)) {
    state.recognised = true;
    state.traffic.protocol = UpperProtocol::nvme;
  } else if (++state.looked_at == max_examined_messages) {
    state.given_up = true;
  }
}

// Side a is the host, which sends commands; side b is the controller, which sends completions.
void UpperProtocols::count(State& state, const Origin& origin, const SendPart& part) {
  MessageCounts& messages = state.traffic.messages;
  if (state.traffic.protocol == UpperProtocol::smb_direct) {
    return count_smb_direct(messages, part);
  }
  if (origin.side == Side::a) {
    if (!may_be_command(part.bytes)) {
      ++messages["other"];
      return;
    }
    if (is_connect(part.bytes)) {
      const bool admin = le16(part.bytes, 42) == 0;  // the queue id: 0 is the admin queue
      state.nvme.admin = admin;
      state.nvme.input_output = !admin;
    }
    ++messages[command_name(part.bytes, state.nvme.admin, state.nvme.input_output)];
  } else if (part.bytes.size() == completion_bytes) {
    ++messages["completion"];
    // The lowest bit is the phase tag, which fabrics do not use; the rest is the status.
    if ((le16(part.bytes, 14) >> 1U) != 0) ++messages["completion with an error"];
  } else {
    ++messages["other"];
  }
}

// Later parts of a Send are payload, so only the first part is examined.
void UpperProtocols::on_send(const Origin& origin, const SendPart& part) {
  if (part.offset != 0) return;
  State& state = states_.get(origin.connection);
  if (state.given_up) return;
  if (!state.recognised) recognise(state, origin, part);
  if (state.recognised) count(state, origin, part);
}

const UpperTraffic* UpperProtocols::of(ConnectionId connection) const {
  const State* known = states_.find(connection);
  return known == nullptr || !known->recognised ? nullptr : &known->traffic;
}

}  // namespace weft::capture
