#include "capture/rpc/message_reader.h"
#include "wire/xdr.h"

namespace weft::capture {
namespace {

// Returns the length of a chunk, including the flaws of one that was too long to hold.
std::uint64_t announced(const Assembled& chunk) {
  const std::uint64_t size = chunk.size();
  return chunk.flaws().empty() ? size : std::max(size, chunk.flaws().back().end);
}

}  // namespace

// Compares what was read with the flaws of the message. Damage stays: later items may be at wrong
// positions.
bool MessageReader::sound() {
  if (!message_->whole(sound_from_, position())) damaged_ = true;
  sound_from_ = position();
  return in_.ok() && !damaged_;
}

// Reads a DDP-eligible item from the next chunk or from the message. Only the length word is always
// in the message.
Assembled MessageReader::bulk() {
  const std::uint32_t size = in_.u32();
  if (!sound()) return {};
  if (next_chunk_ < chunks_->size()) {
    const Assembled& chunk = (*chunks_)[next_chunk_++];
    const auto length = announced(chunk);
    // RFC 8166 §3.4.6.2: an unused chunk has length 0, and the item is inline.
    if (length != 0) {
      // Some responders write the padding as well.
      if (length != size && length != wire::xdr_padded(size)) mismatches_.push_back({size, length});
      placements_.push_back({position(), next_chunk_ - 1});
      Assembled item = chunk.part(0, size);
      if (item.size() < size)
        item.append_flawed(std::min<std::uint64_t>(size, length) - item.size(), Flaw::missing);
      return item;
    }
  }
  const std::size_t begin = position();
  in_.fixed(size);
  if (!in_.ok()) return {};
  // Flaws of the item itself are returned with it, and do not damage the rest of the message.
  sound_from_ = position();
  return message_->part(begin, begin + size);
}

std::string MessageReader::text() {
  return std::string(in_.text());
}

}  // namespace weft::capture
