// The decoded content of NFS calls and replies, reduced to what a reader of captures needs: names,
// handles, ranges, status, bytes. An exchange of NFS version 3 (RFC 1813) has one operation, one of
// version 4 (RFC 7530, 8881, 7862, 8276) a list of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/bytes.hpp"
#include "weft/capture/assembled.hpp"
#include "weft/export.hpp"

namespace weft::capture {

inline constexpr std::uint32_t nfs_program = 100003;

// Opaque bytes that the server assigned to a file.
using FileHandle = std::vector<std::byte>;
// Returns two digits per byte, without a prefix.
[[nodiscard]] WEFT_API std::string to_hex(Bytes bytes);

struct DirectoryEntry {
  std::string name;
  std::uint64_t file_id = 0;  // version 3 only
  FileHandle handle;          // READDIRPLUS only
};

struct NfsOperation {
  std::uint32_t number = 0;
  std::string_view name;  // such as "READ", in static storage
  // The current and the saved file handle when the operation ran: the objects that it works on.
  // Empty if the traffic does not show them.
  FileHandle handle;
  FileHandle saved;
  FileHandle found;    // handle in the result: LOOKUP, CREATE and MKDIR of version 3, GETFH.
  std::string entry;   // name in the directory `handle`
  std::string target;  // new name of RENAME; content of the link for SYMLINK and READLINK
  FileHandle target_directory;  // of RENAME and LINK
  bool has_range = false;
  std::uint64_t offset = 0;
  std::uint64_t count = 0;  // requested by READ, or announced by WRITE (where `bulk` may hold less)
  std::optional<std::uint64_t> new_size;   // set by SETATTR, CREATE or OPEN
  std::optional<std::uint64_t> file_size;  // from the attributes in the result
  Assembled bulk;                          // data of WRITE, and of the results of READ and READLINK
  bool end_of_file = false;
  std::vector<DirectoryEntry> entries;
  bool answered = false;
  std::uint32_t status = 0;  // valid if `answered`
};

// What SEQUENCE or CB_SEQUENCE names (RFC 8881 §18.46, §20.9): a request in a slot of a session. A
// slot has one request at a time, so a client without a free slot waits.
struct NfsSession {
  std::vector<std::byte> id;  // 16 bytes
  std::uint32_t sequence = 0;
  std::uint32_t slot = 0;
  std::uint32_t highest_slot = 0;  // with an outstanding request
};

struct NfsExchange {
  std::uint32_t version = 0;
  std::uint32_t minor = 0;
  bool callback = false;  // sent by the server to the client
  std::string tag;
  std::optional<NfsSession> session;  // of version 4.1 and later
  std::vector<NfsOperation> operations;
  std::uint32_t status = 0;  // status of the whole reply
  // False if bytes are missing or malformed, or an operation is unknown; then `operations` ends
  // there.
  bool call_decoded = false;
  bool reply_decoded = false;
};

// Returns "NFS4ERR_NOENT" or "OK"; the number if the status is unknown.
[[nodiscard]] WEFT_API std::string nfs_status(std::uint32_t version, std::uint32_t status);
// Returns the name of a procedure of version 3 (RFC 1813 §3), such as "READ", in static storage. An
// unknown number yields "unknown procedure".
[[nodiscard]] WEFT_API std::string_view nfs3_procedure(std::uint32_t procedure);
// Returns the name of an operation of version 4, such as "READ" (RFC 7530 §16, RFC 8881 §18, RFC
// 7862 §15, RFC 8276 §8.4). With `callback` it is one of the server's callbacks, such as
// "CB_RECALL" (RFC 7530 §17, RFC 8881 §20, RFC 7862 §16). The text is in static storage. An unknown
// number yields "unknown operation".
[[nodiscard]] WEFT_API std::string_view nfs4_operation(std::uint32_t operation, bool callback);

}  // namespace weft::capture
