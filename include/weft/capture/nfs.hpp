// What an NFS call asks and what its reply says, as far as a reader of captures wants to know:
// names, handles, ranges, status, bytes. NFS version 3 (RFC 1813) is one operation, version 4 (RFC
// 7530, 8881, 7862, 8276) a list of them.
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

// Opaque bytes that the server has given a file.
using FileHandle = std::vector<std::byte>;
// Two digits a byte, without a prefix.
[[nodiscard]] WEFT_API std::string to_hex(Bytes bytes);

struct DirectoryEntry {
  std::string name;
  std::uint64_t file_id = 0;  // version 3 only
  FileHandle handle;          // READDIRPLUS only
};

struct NfsOperation {
  std::uint32_t number = 0;
  std::string_view name;  // "READ"; of static storage
  // The current file handle when the operation ran, and the saved one: what it works on. Empty
  // where the traffic does not tell.
  FileHandle handle;
  FileHandle saved;
  FileHandle found;    // that the result names: LOOKUP, CREATE and MKDIR of version 3, GETFH
  std::string entry;   // name in the directory `handle`
  std::string target;  // RENAME: new name; SYMLINK and READLINK: what it says
  FileHandle target_directory;  // RENAME and LINK
  bool has_range = false;
  std::uint64_t offset = 0;
  std::uint64_t count = 0;  // asked for (READ) or announced (WRITE, as counted by `bulk`)
  std::optional<std::uint64_t> new_size;   // that SETATTR, CREATE or OPEN sets
  std::optional<std::uint64_t> file_size;  // that attributes in the result tell
  Assembled bulk;                          // bytes of WRITE and of the results of READ and READLINK
  bool end_of_file = false;
  std::vector<DirectoryEntry> entries;
  bool answered = false;
  std::uint32_t status = 0;  // where answered
};

struct NfsExchange {
  std::uint32_t version = 0;
  std::uint32_t minor = 0;
  bool callback = false;  // from server to client
  std::string tag;
  std::vector<NfsOperation> operations;
  std::uint32_t status = 0;  // of the whole reply
  // False where bytes are missing, malformed, or belong to an operation that is not known: then the
  // operations up to there are here.
  bool call_decoded = false;
  bool reply_decoded = false;
};

// "NFS4ERR_NOENT", "OK"; the number where it is not known.
[[nodiscard]] WEFT_API std::string nfs_status(std::uint32_t version, std::uint32_t status);
// "READ"; of static storage. What stands there for a number that is not known is no name of NFS.
[[nodiscard]] WEFT_API std::string_view nfs3_procedure(std::uint32_t procedure);
[[nodiscard]] WEFT_API std::string_view nfs4_operation(std::uint32_t operation, bool callback);

}  // namespace weft::capture
