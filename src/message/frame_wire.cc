#include "message/frame_wire.h"

#include <algorithm>

#include "base/byte_reader.h"
#include "base/byte_writer.h"
#include "base/size.h"

namespace weft::message::detail {
namespace {

constexpr std::uint8_t confirm_flag = 1;
constexpr std::uint8_t answer_flag = 2;
// In the length of a part: the other 31 bits are the number of bytes.
constexpr std::uint32_t part_confirm_flag = std::uint32_t{1} << 31;
constexpr std::size_t reserved_bytes = 4;  // between type and tag

bool has_type(Kind kind) {
  return kind == Kind::message || kind == Kind::offer;
}

std::size_t aligned(std::size_t at) {
  return (at + Frame::part_alignment - 1) / Frame::part_alignment * Frame::part_alignment;
}

// Where the header of the next part begins.
std::size_t next_part(const std::vector<Part>& parts) {
  return parts.empty() ? Frame::header_bytes
                       : aligned(parts.back().offset + to_size(parts.back().bytes));
}

bool parse_parts(ByteReader& in, std::vector<Part>& parts) {
  while (in.left() > 0) {
    // Bounded, so that a frame of empty parts cannot make the receiver allocate without end.
    if (parts.size() == Frame::max_parts) return false;
    Part part;
    part.type = in.be32();
    const std::uint32_t length = in.be32();
    part.tag = in.be64();
    part.confirm = (length & part_confirm_flag) != 0;
    part.bytes = length & ~part_confirm_flag;
    part.offset = in.position();
    in.skip(to_size(part.bytes));
    if (!in.ok()) return false;
    parts.push_back(part);
    // The padding of the last part may be there or not, or be cut short.
    in.skip(std::min(in.left(), aligned(in.position()) - in.position()));
  }
  return !parts.empty();
}

// Writes zeros into the padding between the parts, or the peer would see memory of other messages.
void encode_parts(ByteWriter& out, const std::vector<Part>& parts) {
  for (const auto& part : parts) {
    out.zeros_to_multiple(Frame::part_alignment);
    const std::uint64_t length = part.bytes | (part.confirm ? part_confirm_flag : 0);
    out.be64(std::uint64_t{part.type} << 32 | length);
    out.be64(part.tag);
    out.skip(to_size(part.bytes));
  }
}

// The pieces must add up to the length of the message: the receiver allocates by the length and
// reads by the pieces.
bool parse_pieces(ByteReader& in, Frame& frame) {
  frame.bytes = in.be64();
  const std::uint32_t count = in.be32();
  // Each piece costs an RDMA Read, so their number is limited by the protocol.
  if (count == 0 || count > Frame::max_pieces) return false;
  std::uint64_t left = frame.bytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto piece = verbs::RemoteSlice::from_bytes(in.bytes(verbs::RemoteSlice::encoded_bytes));
    if (!piece || piece->size_bytes() == 0 || piece->size_bytes() > left) return false;
    left -= piece->size_bytes();
    frame.pieces.push_back(*piece);
  }
  return left == 0;
}

void encode_pieces(ByteWriter& out, const Frame& frame) {
  out.be64(frame.bytes);
  out.be32(static_cast<std::uint32_t>(frame.pieces.size()));
  for (const auto& piece : frame.pieces) out.bytes(piece.to_bytes());
}

}  // namespace

bool Frame::join(Part part, std::size_t limit) {
  part.offset = next_part(parts) + part_header_bytes;
  if (parts.size() == max_parts || part.offset > limit || part.bytes > limit - part.offset) {
    return false;
  }
  parts.push_back(part);
  return true;
}

// Only the header is written: the payload is gathered by the device from where it is.
std::size_t Frame::encode(MutableBytes into) const {
  ByteWriter out(into);
  out.u8(static_cast<std::uint8_t>(kind));
  out.u8(static_cast<std::uint8_t>((confirm ? confirm_flag : 0) | (answer ? answer_flag : 0)));
  out.be16(credits);
  out.be32(delivered);
  out.be32(fetched);
  out.be32(updates);
  if (has_type(kind)) {
    out.be32(type);
    out.zeros(reserved_bytes);
    out.be64(tag);
  }
  if (kind == Kind::offer) encode_pieces(out, *this);
  if (kind == Kind::joined) encode_parts(out, parts);
  return out.ok() ? out.position() : 0;
}

std::optional<Frame> Frame::parse(Bytes bytes) {
  ByteReader in(bytes);
  const std::uint8_t kind = in.u8();
  if (kind < static_cast<std::uint8_t>(Kind::message) ||
      kind > static_cast<std::uint8_t>(Kind::joined)) {
    return std::nullopt;
  }
  Frame frame;
  frame.kind = static_cast<Kind>(kind);
  const std::uint8_t flags = in.u8();
  frame.confirm = (flags & confirm_flag) != 0;
  frame.answer = (flags & answer_flag) != 0;
  frame.credits = in.be16();
  frame.delivered = in.be32();
  frame.fetched = in.be32();
  frame.updates = in.be32();
  if (has_type(frame.kind)) {
    frame.type = in.be32();
    in.skip(reserved_bytes);
    frame.tag = in.be64();
  }
  if (frame.kind == Kind::message) frame.bytes = in.left();
  if (frame.kind == Kind::offer && !parse_pieces(in, frame)) return std::nullopt;
  if (frame.kind == Kind::joined && !parse_parts(in, frame.parts)) return std::nullopt;
  return in.ok() ? std::optional(std::move(frame)) : std::nullopt;
}

}  // namespace weft::message::detail
