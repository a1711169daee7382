#include "capture/rpc/message_extraction.h"

#include <fmt/format.h>

#include <algorithm>

#include "wire/rdmap.h"

namespace weft::capture {
namespace {

void add_flaws(JsonLine& line, const Assembled& bytes) {
  line.number("bytes", bytes.size()).boolean("complete", bytes.whole()).array("missing");
  for (const FlawedRange& range : bytes.flaws()) {
    line.element().number("begin", range.begin).number("end", range.end);
    line.text("why", describe(range.flaw)).close();
  }
  line.close(']');
}

const char* name_of(Side side) {
  return side == Side::a ? "a" : "b";
}

}  // namespace

// Returns the open message, or begins it. If there are too many, the oldest one is written as it
// is.
MessageExtraction::Open& MessageExtraction::open(const Key& key, const Stamp& stamp) {
  if (const auto known = open_.find(key); known != open_.end()) {
    known->second.last = stamp;
    return known->second;
  }
  // The key is copied, because end() erases the entry that holds it.
  if (open_.size() == max_open) end(Key(by_age_.begin()->second));
  Open& made = open_.try_emplace(key, budget_, ++begun_).first->second;
  by_age_.emplace(made.number, key);
  made.first = made.last = stamp;
  return made;
}

// Stores a part. Bytes that were not captured become a flaw of the file.
void MessageExtraction::place(Open& open, std::uint64_t offset, Bytes bytes,
                              std::uint64_t missing_bytes, bool lost) {
  open.bytes.place(offset, bytes);
  if (missing_bytes > 0 && !lost) open.bytes.place_cut(offset + bytes.size(), missing_bytes);
  open.size = std::max(open.size, offset + bytes.size() + missing_bytes);
}

// Ends the message of the same side and kind that was open before this one.
void MessageExtraction::end_others(const Key& key) {
  const auto& [connection, side, kind, number] = key;
  const auto first = open_.lower_bound({connection, side, kind, 0});
  if (first == open_.end()) return;
  const Key found = first->first;
  if (found == key || std::get<0>(found) != connection || std::get<1>(found) != side ||
      std::get<2>(found) != kind) {
    return;
  }
  end(found);
}

void MessageExtraction::on_send(const Origin& origin, const SendPart& part) {
  if (!wanted_.connection(origin.connection)) return;
  const Key key{origin.connection, origin.side, Kind::send, part.message};
  end_others(key);
  Open& message = open(key, origin.stamp);
  place(message, part.offset, part.bytes, part.missing_bytes, part.lost);
  message.ended = part.last;
  if (!part.last) return;
  if (part.has_immediate) message.immediate = part.immediate;
  message.invalidated_key = part.invalidated_key;
  end(key);
}

void MessageExtraction::on_write(const Origin& origin, const WritePart& part) {
  if (!wanted_.connection(origin.connection)) return;
  const Key key{origin.connection, origin.side, Kind::write, part.message};
  end_others(key);
  Open& message = open(key, origin.stamp);
  if (message.size == 0) message.address = part.address;
  message.key = part.key;
  if (part.address >= message.address) {
    place(message, part.address - message.address, part.bytes, part.missing_bytes, part.lost);
  }
  message.ended = part.last;
  if (part.has_immediate) message.immediate = part.immediate;
  if (part.last) end(key);
}

// RFC 7306 §7: Immediate Data is a separate message; it may follow the Write that it belongs to.
void MessageExtraction::on_immediate(const Origin& origin, const ImmediateMessage& message) {
  if (!wanted_.connection(origin.connection)) return;
  const Key key{origin.connection, origin.side, Kind::immediate, message.message};
  Open& whole = open(key, origin.stamp);
  place(whole, 0, message.bytes, 0, false);
  whole.ended = true;
  if (message.bytes.size() >= sizeof(std::uint32_t)) {
    whole.immediate = wire::immediate_number(message.bytes);
  }
  end(key);
}

// A repeated request belongs to a message that is open already.
void MessageExtraction::on_read_request(const Origin& origin, const ReadRequest& request) {
  if (request.repeated || !wanted_.connection(origin.connection)) return;
  Open& message = open({origin.connection, origin.side, Kind::read, request.request}, origin.stamp);
  message.key = request.key;
  message.address = request.address;
  message.size = request.length;
}

// Places a part of a response in the open Read. The sizes are checked without overflow, because the
// wire may contain any offset.
void MessageExtraction::on_read_part(const Origin& origin, const ReadPart& part) {
  const Key key{origin.connection, other(origin.side), Kind::read, part.request};
  const auto known = open_.find(key);
  if (!part.known || known == open_.end()) return;
  Open& message = known->second;
  message.last = origin.stamp;
  // A part before the start of the Read wraps to a large offset, which the next test rejects.
  const std::uint64_t offset = part.address - message.address;
  if (offset <= message.size && part.bytes.size() + part.missing_bytes <= message.size - offset) {
    place(message, offset, part.bytes, part.missing_bytes, part.lost);
  }
  message.ended = part.last;
  if (part.last) end(key);
}

void MessageExtraction::end(const Key& key) {
  const auto known = open_.find(key);
  if (known == open_.end()) return;
  if (wanted(key, known->second)) write(key, known->second);
  by_age_.erase(known->second.number);
  open_.erase(known);
}

// Builds an Operation with the fields that a selection tests.
bool MessageExtraction::wanted(const Key& key, const Open& open) const {
  constexpr Operation::Kind kinds[] = {Operation::Kind::send, Operation::Kind::write,
                                       Operation::Kind::read, Operation::Kind::immediate};
  Operation message;
  message.connection = std::get<ConnectionId>(key);
  message.side = std::get<Side>(key);
  message.kind = kinds[static_cast<std::size_t>(std::get<Kind>(key))];
  message.start = open.first;
  message.bytes = open.size;
  message.key = open.key;
  message.address = open.address;
  message.invalidated_key = open.invalidated_key;
  return wanted_.message(message);
}

// Writes the file and its entry in the index.
void MessageExtraction::write(const Key& key, const Open& open) {
  constexpr const char* names[] = {"send", "write", "read", "immediate"};
  const auto& [connection, side, kind, message] = key;
  const char* const name = names[static_cast<std::size_t>(kind)];
  const auto number = std::uint64_t{connection} + 1;
  Assembled bytes = open.bytes.take(0, open.size);
  if (!open.ended) bytes.set_open_end();
  const std::string path = fmt::format("messages/{}/{:08}-{}-{}{}", number, ++numbered_,
                                       name_of(side), name, bytes.whole() ? "" : ".incomplete");
  directory_.write(path, bytes.bytes());
  JsonLine line = directory_.begin_entry(path, name);
  line.number("connection", number).text("side", name_of(side)).number("message", message);
  line.number("first_frame", open.first.frame).number("last_frame", open.last.frame);
  if (kind == Kind::write || kind == Kind::read) {
    line.hex("key", open.key).hex("address", open.address);
  }
  if (open.immediate) line.number("immediate", *open.immediate);
  if (open.invalidated_key != 0) line.hex("invalidated_key", open.invalidated_key);
  add_flaws(line, bytes);
  directory_.end_entry(line);
}

// The keys are copied here and in finish(), because end() erases the entries that hold them.
void MessageExtraction::on_close(ConnectionId connection) {
  for (;;) {
    const auto first = open_.lower_bound({connection, Side::a, Kind::send, 0});
    if (first == open_.end() || std::get<ConnectionId>(first->first) != connection) return;
    end(Key(first->first));
  }
}

void MessageExtraction::finish() {
  while (!open_.empty()) end(Key(open_.begin()->first));
}

// The call and the reply have the same number, by which their files are found together.
void RpcExtraction::add(const Rpc& rpc) {
  ++numbered_;
  if (rpc.call) add(rpc, *rpc.call, "call");
  if (rpc.reply) add(rpc, *rpc.reply, "reply");
}

void RpcExtraction::add(const Rpc& rpc, const RpcMessage& message, const char* kind) {
  const Assembled& bytes = message.whole ? *message.whole : message.message;
  const auto connection = std::uint64_t{rpc.connection} + 1;
  const std::string path = fmt::format("rpc/{}/{:08x}.{}.{}{}", connection, rpc.xid, numbered_,
                                       kind, bytes.whole() ? "" : ".incomplete");
  directory_.write(path, bytes.bytes());
  JsonLine line = directory_.begin_entry(path, kind);
  line.number("connection", connection).hex("xid", rpc.xid).text("name", describe(rpc));
  line.number("first_frame", message.first.frame).number("last_frame", message.last.frame);
  add_flaws(line, bytes);
  directory_.end_entry(line);
}

}  // namespace weft::capture
