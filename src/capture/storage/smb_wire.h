// Decodes SMB Direct (MS-SMBD) and the messages of SMB 2 and 3 in it (MS-SMB2).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "capture/storage/storage_message.h"

namespace weft::capture {

// Whether a message is one that SMB Direct begins with, or carries SMB 2. A response proves nothing
// that its request did not, so only requests and transfers are tested.
[[nodiscard]] bool is_smb_direct(const StorageBytes& message);

// A Data Transfer: a piece of an SMB 2 message, or nothing but credits.
struct SmbTransfer {
  Bytes data;                   // as far as it was captured
  std::uint64_t size = 0;       // of the piece, on the wire
  std::uint32_t remaining = 0;  // bytes of the same message in the transfers that follow
};

// Counts a message by its type. Returns a transfer with data, otherwise nullopt.
[[nodiscard]] std::optional<SmbTransfer> decode_smb_direct(const StorageBytes& message,
                                                           MessageCounts& counts);

// What a message of SMB Direct says about credits. All but the two of the negotiation use one.
struct SmbDirectCredits {
  std::uint16_t granted = 0;  // to the other side
  bool opens = false;         // a Negotiate Response, with which the count begins
  bool has_data = false;      // a transfer with a piece of an SMB message
};
// Returns nullopt for a Negotiate Request, and if the fields were not captured.
[[nodiscard]] std::optional<SmbDirectCredits> smb_direct_credits(const StorageBytes& message);

// The name of the command with which SMB 2 begins on a connection.
inline constexpr std::string_view smb2_negotiate = "SMB2 NEGOTIATE";

// The sixteen bytes with which SMB 2 identifies an open file.
using SmbFileId = std::array<std::byte, 16>;

// One SMB 2 message of a chain (MS-SMB2 §2.2.1).
struct Smb2Message {
  StorageMessage message;
  // The name in a CREATE or TREE_CONNECT is in the command; what the others use is an open file.
  std::optional<SmbFileId> file;  // that the command uses, or that the answer to a CREATE opened
  bool uses_last_file = false;    // the file that the chain has opened before
  std::size_t next = 0;           // of the chain: where the next message begins; 0: nowhere
  bool readable = false;          // it has a whole header that is not encrypted
  std::uint16_t credits_charged = 0;  // by a request; 0 means one
  std::uint16_t credits_granted = 0;  // by a response
};

// Decodes the first message of `chain`, and counts it. Encrypted messages only count.
[[nodiscard]] Smb2Message decode_smb2(Bytes chain, MessageCounts& counts);

}  // namespace weft::capture
