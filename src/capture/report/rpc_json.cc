#include "capture/report/rpc_json.h"

#include "capture/text/json_line.h"
#include "capture/text/units.h"
#include "weft/capture/rpc_text.hpp"
#include "wire/rpc_rdma.h"

namespace weft::capture {
namespace {

const char* name_of(GssProtection protection) {
  switch (protection) {
    case GssProtection::none:
      return "none";
    case GssProtection::integrity:
      return "integrity";
    case GssProtection::privacy:
      return "privacy";
  }
  return "unknown";
}

// Writes the flaws of a message, if there are any.
void add_flaws(JsonLine& line, const char* name, const Assembled& bytes) {
  if (bytes.whole()) return;
  line.array(name);
  for (const FlawedRange& range : bytes.flaws()) {
    line.element().number("begin", range.begin).number("end", range.end);
    line.text("flaw", describe(range.flaw)).close();
  }
  line.close(']');
}

// Writes call or reply. The whole message, with chunks in place, is preferred.
void add_message(JsonLine& line, const char* name, const RpcMessage& message) {
  const Assembled& bytes = message.whole ? *message.whole : message.message;
  line.object(name).number("frame", message.first.frame).number("ns", message.first.time_ns);
  line.number("last_frame", message.last.frame).number("credits", message.credits);
  line.text("procedure", wire::describe(message.procedure)).number("bytes", bytes.size());
  line.number("read_segments", message.lists.reads.size());
  line.number("write_chunks", message.lists.writes.size());
  line.boolean("reply_chunk", message.lists.reply.has_value()).boolean("whole", message.complete());
  add_flaws(line, "flaws", bytes);
  line.close();
}

// Writes an NFS operation; absent fields are left out.
void add_operation(JsonLine& line, const NfsExchange& nfs, const NfsOperation& operation) {
  line.element().text("name", operation.name);
  if (operation.answered) line.text("status", nfs_status(nfs.version, operation.status));
  if (!operation.handle.empty()) line.text("handle", to_hex(operation.handle));
  if (!operation.entry.empty()) line.text("entry", printable(operation.entry));
  if (!operation.target.empty()) line.text("target", printable(operation.target));
  if (!operation.found.empty()) line.text("found", to_hex(operation.found));
  if (operation.has_range) {
    line.number("offset", operation.offset).number("count", operation.count);
  }
  if (operation.new_size) line.number("new_size", *operation.new_size);
  if (operation.file_size) line.number("file_size", *operation.file_size);
  if (operation.bulk.size() > 0) {
    line.number("bytes", operation.bulk.size()).boolean("whole", operation.bulk.whole());
    add_flaws(line, "flaws", operation.bulk);
  }
  if (!operation.entries.empty()) {
    line.array("entries");
    for (const DirectoryEntry& entry : operation.entries) line.item(printable(entry.name));
    line.close(']');
  }
  line.close();
}

void add_nfs(JsonLine& line, const NfsExchange& nfs) {
  line.object("nfs").number("version", nfs.version).number("minor", nfs.minor);
  line.boolean("callback", nfs.callback).boolean("call_decoded", nfs.call_decoded);
  line.boolean("reply_decoded", nfs.reply_decoded);
  if (nfs.session) {
    line.object("session").text("id", to_hex(nfs.session->id));
    line.number("slot", nfs.session->slot).number("sequence", nfs.session->sequence);
    line.number("highest_slot", nfs.session->highest_slot).close();
  }
  line.array("operations");
  for (const NfsOperation& operation : nfs.operations) add_operation(line, nfs, operation);
  line.close(']').close();
}

}  // namespace

void write_json(fmt::memory_buffer& out, const Rpc& rpc, std::uint64_t number) {
  JsonLine line(out);
  line.text("type", "rpc").number("rpc", number);
  // Reports number connections from 1, and so do the other lists.
  line.number("connection", std::uint64_t{rpc.connection} + 1);
  line.text("caller", rpc.caller == Side::a ? "a" : "b").hex("xid", rpc.xid);
  if (rpc.has_header) {
    line.number("program", rpc.program).number("version", rpc.version);
    line.number("procedure", rpc.procedure);
  }
  line.text("name", describe(rpc)).text("status", outcome_text(rpc));
  line.number("retransmissions", rpc.retransmissions);
  if (rpc.call && rpc.reply) line.number("latency_ns", rpc.latency_ns);
  if (rpc.gss != GssProtection::none) line.text("gss", name_of(rpc.gss));
  if (rpc.call) add_message(line, "call", *rpc.call);
  if (rpc.reply) add_message(line, "reply", *rpc.reply);
  if (rpc.nfs) add_nfs(line, *rpc.nfs);
  line.end();
}

}  // namespace weft::capture
