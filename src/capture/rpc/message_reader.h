// Reads the XDR stream of an RPC message. The stream may have holes, and large items of a reply may
// be in its write chunks instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/capture/assembled.hpp"
#include "wire/xdr.h"

namespace weft::capture {

// An item with a length word that disagrees with the length of its chunk.
struct LengthMismatch {
  std::uint64_t length_word = 0;  // by the length word in the message
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
  // Returns false if something did not decode, or if what was read has flaws. Then nothing may be
  // used that was read since the last call that returned true.
  [[nodiscard]] bool sound();

  // Reads a DDP-eligible item (RFC 8267): inline, or from the next chunk. Flaws of the item itself
  // do no harm.
  Assembled bulk();
  std::string text();

  // Where each chunk belongs in the reduced message, in order; used to restore the whole message.
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
