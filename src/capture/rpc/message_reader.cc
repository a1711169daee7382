#include "capture/rpc/message_reader.h"
#include "wire/xdr.h"

namespace weft::capture {
namespace {

std::uint64_t announced(const Assembled& chunk) {
  const std::uint64_t size = chunk.size();
  return chunk.flaws().empty() ? size : std::max(size, chunk.flaws().back().end);
}

}  // namespace

bool MessageReader::sound() {
  if (!message_->whole(sound_from_, position())) damaged_ = true;
  sound_from_ = position();
  return in_.ok() && !damaged_;
}

Assembled MessageReader::bulk() {
  const std::uint32_t size = in_.u32();
  if (!sound()) return {};
  if (next_chunk_ < chunks_->size()) {
    const Assembled& chunk = (*chunks_)[next_chunk_++];
    const auto length = announced(chunk);
    // An unused chunk, of no length, means that the item is inline (RFC 8166 §3.4.6.2).
    if (length != 0) {
      // Some responders write the padding too.
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
  sound_from_ = position();
  return message_->part(begin, begin + size);
}

std::string MessageReader::text() {
  return std::string(in_.text());
}

}  // namespace weft::capture
