// Reads the XDR stream of an RPC message that may have holes, and whose large items may be
// elsewhere: in the write chunks of a reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/capture/assembled.hpp"
#include "wire/xdr.h"

namespace weft::capture {

// An item whose length word and whose chunk disagree.
struct LengthMismatch {
  std::uint64_t said = 0;  // by the word in the message
  std::uint64_t in_chunk = 0;
};

class MessageReader {
 public:
  // Both must outlive the reader. `chunks` are the write chunks of a reply, in order.
  MessageReader(const Assembled& message, std::size_t begin, const std::vector<Assembled>& chunks)
      : message_(&message),
        chunks_(&chunks),
        in_(message.bytes().subspan(begin)),
        begin_(begin),
        sound_from_(begin) {}

  wire::XdrReader& xdr() { return in_; }
  [[nodiscard]] std::size_t position() const { return begin_ + in_.position(); }
  // False where something did not decode, or what was read is not as it was sent: then nothing read
  // since the last time this was true may be believed.
  [[nodiscard]] bool sound();

  // A DDP-eligible item (RFC 8267): inline, or the next chunk. Its own holes do no harm.
  Assembled bulk();
  std::string text();

  // Where chunks belong in the reduced message, in order: to put the whole message together.
  struct Placement {
    std::size_t position = 0;
    std::size_t chunk = 0;
  };
  [[nodiscard]] const std::vector<Placement>& placements() const { return placements_; }
  [[nodiscard]] const std::vector<LengthMismatch>& mismatches() const { return mismatches_; }
  [[nodiscard]] std::size_t chunks_left() const { return chunks_->size() - next_chunk_; }

 private:
  const Assembled* message_;
  const std::vector<Assembled>* chunks_;
  wire::XdrReader in_;
  std::size_t begin_;
  std::size_t sound_from_;
  std::size_t next_chunk_ = 0;
  bool damaged_ = false;
  std::vector<Placement> placements_;
  std::vector<LengthMismatch> mismatches_;
};

}  // namespace weft::capture
