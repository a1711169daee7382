// Decodes COMPOUND of NFS version 4 and of its callbacks (RFC 7530, 8881, 7862).
#include "capture/rpc/nfs4_table.h"
#include "capture/rpc/nfs_decode.h"
#include "capture/rpc/xdr_format.h"
#include "wire/xdr.h"

namespace weft::capture {
namespace {

using wire::XdrReader;

// NFS4_FHSIZE. The limit of operations bounds the memory that a hostile count could take.
constexpr std::size_t max_handle_bytes = 128;
constexpr std::uint32_t max_operations = 1024;

FileHandle handle_of(XdrReader& in) {
  const Bytes bytes = in.opaque(max_handle_bytes);
  return {bytes.begin(), bytes.end()};
}

// Returns the size among attributes, which are in the order of their numbers (RFC 8881 §5.8).
// Before it there may be the supported attributes, type, expiry of handles, and change.
std::optional<std::uint64_t> size_attribute(XdrReader& in) {
  constexpr std::uint32_t supported = 1U << 0;
  constexpr std::uint32_t type = 1U << 1;
  constexpr std::uint32_t expiry = 1U << 2;
  constexpr std::uint32_t change = 1U << 3;
  constexpr std::uint32_t size = 1U << 4;
  const std::uint32_t words = in.count(4);
  std::uint32_t first = 0;
  for (std::uint32_t i = 0; i < words; ++i) {
    const std::uint32_t word = in.u32();
    if (i == 0) first = word;
  }
  XdrReader values(in.opaque());
  if ((first & size) == 0 || !in.ok()) return {};
  if ((first & supported) != 0) skip_items(values, "b");
  if ((first & type) != 0) values.u32();
  if ((first & expiry) != 0) values.u32();
  if ((first & change) != 0) values.u64();
  const std::uint64_t value = values.u64();
  return values.ok() ? std::optional(value) : std::nullopt;
}

// createtype4: links have a target, and devices have numbers.
void decode_create(MessageReader& message, NfsOperation& operation) {
  constexpr std::uint32_t block_device = 3;
  constexpr std::uint32_t character_device = 4;
  constexpr std::uint32_t symbolic_link = 5;
  XdrReader& in = message.xdr();
  const std::uint32_t type = in.u32();
  if (type == symbolic_link) operation.target = message.text();
  if (type == block_device || type == character_device) in.u64();
  operation.entry = message.text();
  operation.new_size = size_attribute(in);
}

// openflag4: UNCHECKED, GUARDED and EXCLUSIVE4_1 have attributes; both exclusive modes have a
// verifier.
void decode_open_how(XdrReader& in, NfsOperation& operation) {
  constexpr std::uint32_t exclusive = 2;
  constexpr std::uint32_t exclusive_with_attributes = 3;
  const bool create = in.boolean();
  if (!create) return;
  const std::uint32_t mode = in.u32();
  if (mode > exclusive_with_attributes) in.fail(wire::WireError::bad_value);
  if (mode >= exclusive) in.u64();
  if (mode != exclusive) operation.new_size = size_attribute(in);
}

void decode_open(MessageReader& message, NfsOperation& operation) {
  XdrReader& in = message.xdr();
  // Sequence ID, share access, share deny, and the owner: a client ID and opaque data.
  skip_items(in, "4448o");
  decode_open_how(in, operation);
  switch (in.u32()) {  // open_claim_type4: RFC 8881 §18.16.1
    case 0:
    case 3:
      operation.entry = message.text();
      break;
    case 1:
      in.u32();
      break;
    case 2:
      in.fixed(16);
      operation.entry = message.text();
      break;
    case 5:
      in.fixed(16);
      break;
    case 4:
    case 6:
      break;
    default:
      in.fail(wire::WireError::bad_value);
  }
}

// Decodes the beginning of the arguments of SEQUENCE and CB_SEQUENCE, and skips the rest.
NfsSession session_of(XdrReader& in, std::string_view arguments) {
  NfsSession session = decode_session(in);
  constexpr std::string_view decoded = "K444";
  skip_items(in, arguments.substr(decoded.size()));
  return session;
}

// Decodes the arguments that a reader needs; the format of the table skips the rest.
void decode_arguments(MessageReader& message, NfsOperation& operation,
                      const Nfs4Operation& description) {
  XdrReader& in = message.xdr();
  skip_items(in, description.arguments);
  switch (operation.number) {
    case nfs4::create:
      return decode_create(message, operation);
    case nfs4::open:
      return decode_open(message, operation);
    case nfs4::putfh:
      operation.found = handle_of(in);
      return;
    case nfs4::lookup:
    case nfs4::remove:
    case nfs4::link:
      operation.entry = message.text();
      return;
    case nfs4::rename:
      operation.entry = message.text();
      operation.target = message.text();
      return;
    case nfs4::setattr:
      operation.new_size = size_attribute(in);
      return;
    case nfs4::read:
      in.fixed(16);
      operation.has_range = true;
      operation.offset = in.u64();
      operation.count = in.u32();
      return;
    case nfs4::write:
      in.fixed(16);
      operation.has_range = true;
      operation.offset = in.u64();
      in.u32();
      operation.bulk = message.bulk();
      operation.count = operation.bulk.size();
      return;
    default:
      return;
  }
}

// Decodes the entries of READDIR; entries before a hole are kept.
void decode_entries(MessageReader& message, NfsOperation& operation) {
  XdrReader& in = message.xdr();
  in.u64();  // verifier of the cookies
  while (in.boolean()) {
    in.u64();
    DirectoryEntry entry;
    entry.name = message.text();
    skip_items(in, "a");
    if (!message.sound()) return;
    operation.entries.push_back(std::move(entry));
  }
  operation.end_of_file = in.boolean();
}

// Decodes the result that follows the status NFS4_OK.
void decode_result(MessageReader& message, NfsOperation& operation,
                   const Nfs4Operation& description) {
  XdrReader& in = message.xdr();
  switch (operation.number) {
    case nfs4::getattr:
      operation.file_size = size_attribute(in);
      return;
    case nfs4::getfh:
      operation.found = handle_of(in);
      return;
    case nfs4::read:
      operation.end_of_file = in.boolean();
      operation.bulk = message.bulk();
      return;
    case nfs4::readlink:
      operation.bulk = message.bulk();
      return;
    case nfs4::readdir:
      return decode_entries(message, operation);
    default:
      skip_items(in, description.result);
  }
}

// Returns whether an operation replaces the current file handle by one that is not in the call.
bool moves(std::uint32_t operation) {
  return operation == nfs4::lookup || operation == nfs4::lookupp || operation == nfs4::open ||
         operation == nfs4::create || operation == nfs4::putrootfh || operation == nfs4::putpubfh ||
         operation == nfs4::openattr;
}

// Returns the handle in the next GETFH, if no operation before it changes the current handle.
FileHandle handle_of_next_getfh(const std::vector<NfsOperation>& operations, std::size_t at) {
  for (std::size_t i = at + 1; i < operations.size(); ++i) {
    const NfsOperation& operation = operations[i];
    if (operation.number == nfs4::getfh && operation.answered) return operation.found;
    if (moves(operation.number) || operation.number == nfs4::putfh ||
        operation.number == nfs4::restorefh) {
      break;
    }
  }
  return {};
}

// Computes the current and the saved file handle of each operation: RFC 8881 §16.2.3.1.
void follow_handles(std::vector<NfsOperation>& operations) {
  FileHandle current;
  FileHandle saved;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    NfsOperation& operation = operations[i];
    operation.handle = current;
    operation.saved = saved;
    // An OPEN without a name opens the current file, so the handle stays the same.
    const bool by_handle = operation.number == nfs4::open && operation.entry.empty();
    if (operation.number == nfs4::putfh) {
      current = operation.found;
    } else if (operation.number == nfs4::savefh) {
      saved = current;
    } else if (operation.number == nfs4::restorefh) {
      current = saved;
    } else if (operation.number == nfs4::secinfo || operation.number == nfs4::secinfo_no_name) {
      current.clear();
      // The current handle is the target directory (RFC 8881 §18.9, §18.26). The saved one is the
      // file to link, or the source directory of a RENAME.
    } else if (operation.number == nfs4::rename || operation.number == nfs4::link) {
      operation.target_directory = current;
    } else if (moves(operation.number) && !by_handle) {
      current = operation.found = handle_of_next_getfh(operations, i);
    }
  }
}

}  // namespace

NfsSession decode_session(XdrReader& in) {
  constexpr std::size_t id_bytes = 16;
  const Bytes id = in.fixed(id_bytes);
  return {.id = {id.begin(), id.end()},
          .sequence = in.u32(),
          .slot = in.u32(),
          .highest_slot = in.u32()};
}

std::string_view nfs4_operation(std::uint32_t operation, bool callback) {
  const Nfs4Operation* description = find_nfs4_operation(operation, callback);
  return description == nullptr ? "unknown operation" : description->name;
}

void decode_nfs4_call(MessageReader& message, NfsExchange& exchange) {
  XdrReader& in = message.xdr();
  exchange.tag = message.text();
  exchange.minor = in.u32();
  if (exchange.callback) in.u32();  // callback_ident
  const std::uint32_t count = in.count(4, max_operations);
  for (std::uint32_t i = 0; i < count; ++i) {
    NfsOperation operation;
    operation.number = in.u32();
    if (!message.sound()) return follow_handles(exchange.operations);
    operation.name = nfs4_operation(operation.number, exchange.callback);
    const auto* description = find_nfs4_operation(operation.number, exchange.callback);
    if (description != nullptr) {
      const std::uint32_t sequence =
          exchange.callback ? nfs4::callback_sequence : std::uint32_t{nfs4::sequence};
      // Callbacks have their own numbers, which mean other operations in a call of the client.
      if (operation.number == sequence) {
        exchange.session = session_of(in, description->arguments);
        if (!message.sound()) exchange.session.reset();
      } else if (exchange.callback) {
        skip_items(in, description->arguments);
      } else {
        decode_arguments(message, operation, *description);
      }
    }
    // The length of an unknown operation is unknown, so decoding ends there.
    const bool good = description != nullptr && message.sound();
    exchange.operations.push_back(std::move(operation));
    if (!good) return follow_handles(exchange.operations);
  }
  exchange.call_decoded = message.sound();
  follow_handles(exchange.operations);
}

// A COMPOUND ends with the first operation that fails, so the reply may have fewer results than the
// call.
void decode_nfs4_reply(MessageReader& message, NfsExchange& exchange) {
  XdrReader& in = message.xdr();
  const std::uint32_t status = in.u32();
  in.opaque();
  const std::uint32_t count = in.count(8, max_operations);
  if (!message.sound()) return;
  exchange.status = status;
  bool good = true;
  for (std::uint32_t i = 0; good && i < count; ++i) {
    const std::uint32_t number = in.u32();
    const std::uint32_t result = in.u32();
    // Results must be in the order of the call.
    good = message.sound() && i < exchange.operations.size() &&
           exchange.operations[i].number == number;
    if (!good) break;
    NfsOperation& operation = exchange.operations[i];
    operation.answered = true;
    operation.status = result;
    const auto* description = find_nfs4_operation(number, exchange.callback);
    if (result != 0) {
      skip_items(in, exchange.callback ? "" : nfs4_failure_format(number, result));
    } else if (description == nullptr) {
      good = false;
    } else if (exchange.callback) {
      skip_items(in, description->result);
    } else {
      decode_result(message, operation, *description);
    }
    good = good && message.sound();
  }
  exchange.reply_decoded = good;
  follow_handles(exchange.operations);
}

}  // namespace weft::capture
