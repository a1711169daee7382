// Decodes NFS version 3 (RFC 1813).
#include <array>

#include "base/bytes.h"
#include "capture/rpc/nfs_decode.h"
#include "wire/xdr.h"

namespace weft::capture {
namespace {

using wire::XdrReader;

// NFS3_FHSIZE (RFC 1813 §2.4).
constexpr std::size_t max_handle_bytes = 64;
// fattr3 has five words and eight fields of eight bytes; the size is the first of those.
constexpr std::size_t attributes_bytes = 84;
constexpr std::size_t size_in_attributes = 20;
constexpr std::size_t verifier_bytes = 8;

// Procedure numbers: RFC 1813 §3.3.
enum Procedure : std::uint32_t {
  null,
  getattr,
  setattr,
  lookup,
  access,
  readlink,
  read,
  write,
  create,
  mkdir,
  symlink,
  mknod,
  remove,
  rmdir,
  rename,
  link,
  readdir,
  readdirplus,
  fsstat,
  fsinfo,
  pathconf,
  commit,
  procedures,
};

constexpr std::array<std::string_view, procedures> names{
    "NULL",    "GETATTR",     "SETATTR", "LOOKUP", "ACCESS",   "READLINK", "READ",   "WRITE",
    "CREATE",  "MKDIR",       "SYMLINK", "MKNOD",  "REMOVE",   "RMDIR",    "RENAME", "LINK",
    "READDIR", "READDIRPLUS", "FSSTAT",  "FSINFO", "PATHCONF", "COMMIT"};

FileHandle handle_of(XdrReader& in) {
  const Bytes bytes = in.opaque(max_handle_bytes);
  return {bytes.begin(), bytes.end()};
}

// diropargs3
void directory_entry(MessageReader& in, FileHandle& directory, std::string& name) {
  directory = handle_of(in.xdr());
  name = in.text();
}

// Decodes sattr3, and returns the new size if there is one.
std::optional<std::uint64_t> new_attributes(XdrReader& in) {
  std::optional<std::uint64_t> size;
  for (int i = 0; i < 3; ++i) {  // mode, user, group
    if (in.boolean()) in.u32();
  }
  if (in.boolean()) size = in.u64();
  constexpr std::uint32_t set_to_client_time = 2;
  for (int i = 0; i < 2; ++i) {  // times of access and modification
    if (in.u32() == set_to_client_time) in.u64();
  }
  return size;
}

// fattr3
void attributes(XdrReader& in, NfsOperation& operation) {
  const Bytes bytes = in.fixed(attributes_bytes);
  if (in.ok()) operation.file_size = XdrReader(bytes.subspan(size_in_attributes)).u64();
}

// Decodes the post_op_attr of the object itself.
void attributes_after(XdrReader& in, NfsOperation& operation) {
  if (in.boolean()) attributes(in, operation);
}

void skip_attributes_after(XdrReader& in) {
  if (in.boolean()) in.fixed(attributes_bytes);
}

// Skips wcc_data: attributes before and after the operation.
void skip_before_and_after(XdrReader& in) {
  // wcc_attr: the size and two times, of eight bytes each.
  if (in.boolean()) in.fixed(24);
  skip_attributes_after(in);
}

// post_op_fh3
void handle_after(XdrReader& in, NfsOperation& operation) {
  if (in.boolean()) operation.found = handle_of(in);
}

// createhow3: an exclusive CREATE has a verifier instead of attributes.
void decode_create(XdrReader& in, NfsOperation& operation) {
  constexpr std::uint32_t exclusive = 2;
  if (in.u32() == exclusive) {
    in.fixed(verifier_bytes);
  } else {
    operation.new_size = new_attributes(in);
  }
}

// mknoddata3: only devices, sockets and FIFOs have attributes, and only devices have numbers.
void decode_mknod(XdrReader& in) {
  const std::uint32_t type = in.u32();
  // ftype3: 3 and 4 are block and character devices, 6 and 7 are sockets and FIFOs.
  const bool device = type == 3 || type == 4;
  if (device || type == 6 || type == 7) new_attributes(in);
  if (device) in.u64();
}

void decode_range(XdrReader& in, NfsOperation& operation) {
  operation.has_range = true;
  operation.offset = in.u64();
  operation.count = in.u32();
}

// Decodes the arguments of a procedure. The first switch handles procedures with a name in a
// directory, the second one those with a file handle.
void decode_arguments(MessageReader& message, NfsOperation& operation) {
  XdrReader& in = message.xdr();
  switch (operation.number) {
    case lookup:
    case remove:
    case rmdir:
      return directory_entry(message, operation.handle, operation.entry);
    case create:
      directory_entry(message, operation.handle, operation.entry);
      return decode_create(in, operation);
    case mkdir:
      directory_entry(message, operation.handle, operation.entry);
      new_attributes(in);
      return;
    case symlink:
      directory_entry(message, operation.handle, operation.entry);
      new_attributes(in);
      operation.target = message.text();
      return;
    case mknod:
      directory_entry(message, operation.handle, operation.entry);
      return decode_mknod(in);
    case rename:
      directory_entry(message, operation.handle, operation.entry);
      return directory_entry(message, operation.target_directory, operation.target);
    default:
      operation.handle = handle_of(in);
  }
  switch (operation.number) {
    case setattr:
      operation.new_size = new_attributes(in);
      if (in.boolean()) in.u64();
      return;
    case access:
      in.u32();
      return;
    case read:
    case commit:
      return decode_range(in, operation);
    case write:
      decode_range(in, operation);
      in.u32();
      operation.bulk = message.bulk();
      return;
    case link:
      return directory_entry(message, operation.target_directory, operation.entry);
    case readdir:
      in.fixed(8 + verifier_bytes);
      in.u32();
      return;
    case readdirplus:
      in.fixed(8 + verifier_bytes);
      in.u64();
      return;
    default:
      return;
  }
}

// Decodes the entries of READDIR or, with attributes and handles, READDIRPLUS. Entries before a
// hole are kept.
void decode_entries(MessageReader& message, NfsOperation& operation, bool plus) {
  XdrReader& in = message.xdr();
  skip_attributes_after(in);
  in.fixed(verifier_bytes);
  while (in.boolean()) {
    DirectoryEntry entry;
    entry.file_id = in.u64();
    entry.name = message.text();
    in.u64();
    if (plus) {
      skip_attributes_after(in);
      if (in.boolean()) entry.handle = handle_of(in);
    }
    if (!message.sound()) return;
    operation.entries.push_back(std::move(entry));
  }
  operation.end_of_file = in.boolean();
}

// Decodes the result that follows the status NFS3_OK.
void decode_success(MessageReader& message, NfsOperation& operation) {
  XdrReader& in = message.xdr();
  switch (operation.number) {
    case getattr:
      return attributes(in, operation);
    case lookup:
      operation.found = handle_of(in);
      attributes_after(in, operation);
      return skip_attributes_after(in);
    case access:
      attributes_after(in, operation);
      in.u32();
      return;
    case readlink:
      attributes_after(in, operation);
      operation.bulk = message.bulk();
      return;
    case read:
      attributes_after(in, operation);
      in.u32();
      operation.end_of_file = in.boolean();
      operation.bulk = message.bulk();
      return;
    case write:
      skip_before_and_after(in);
      in.u64();
      in.fixed(verifier_bytes);
      return;
    case create:
    case mkdir:
    case symlink:
    case mknod:
      handle_after(in, operation);
      attributes_after(in, operation);
      return skip_before_and_after(in);
    case readdir:
      return decode_entries(message, operation, false);
    case readdirplus:
      return decode_entries(message, operation, true);
    case fsstat:
      skip_attributes_after(in);
      // Six sizes and counts of eight bytes, and the seconds for which they are valid.
      in.fixed(52);
      return;
    case fsinfo:
      skip_attributes_after(in);
      // Seven transfer sizes, the largest file size, the resolution of times, and the properties.
      in.fixed(48);
      return;
    case pathconf:
      skip_attributes_after(in);
      in.fixed(24);
      return;
    case commit:
      skip_before_and_after(in);
      in.fixed(verifier_bytes);
      return;
    default:
      return;
  }
}

// Decodes the attributes that follow an error status: of one object, of two directories, or none.
void decode_failure(XdrReader& in, const NfsOperation& operation) {
  switch (operation.number) {
    case getattr:
      return;
    case rename:
      skip_before_and_after(in);
      return skip_before_and_after(in);
    case link:
      skip_attributes_after(in);
      return skip_before_and_after(in);
    case setattr:
    case write:
    case create:
    case mkdir:
    case symlink:
    case mknod:
    case remove:
    case rmdir:
    case commit:
      return skip_before_and_after(in);
    default:
      return skip_attributes_after(in);
  }
}

// The result of these procedures has the same form for success and failure.
bool same_either_way(std::uint32_t procedure) {
  return procedure == setattr || procedure == remove || procedure == rmdir || procedure == rename ||
         procedure == link;
}

}  // namespace

std::string_view nfs3_procedure(std::uint32_t procedure) {
  return procedure < names.size() ? names[procedure] : "unknown procedure";
}

// Fields up to a hole are kept; call_decoded shows whether the whole call was read.
void decode_nfs3_call(MessageReader& in, std::uint32_t procedure, NfsExchange& exchange) {
  if (procedure >= procedures) return;
  NfsOperation& operation = exchange.operations.emplace_back();
  operation.number = procedure;
  operation.name = names[procedure];
  if (procedure != null) decode_arguments(in, operation);
  exchange.call_decoded = in.sound();
}

// The status is read first, so that it is known even if the rest is missing.
void decode_nfs3_reply(MessageReader& in, std::uint32_t procedure, NfsExchange& exchange) {
  if (procedure >= procedures || exchange.operations.empty()) return;
  NfsOperation& operation = exchange.operations.front();
  if (procedure != null) {
    const std::uint32_t status = in.xdr().u32();
    if (!in.sound()) return;
    exchange.status = operation.status = status;
  }
  operation.answered = true;
  if (procedure != null) {
    if (operation.status == 0 && !same_either_way(procedure)) {
      decode_success(in, operation);
    } else {
      decode_failure(in.xdr(), operation);
    }
  }
  exchange.reply_decoded = in.sound();
}

}  // namespace weft::capture
