#include "capture/rpc/send_assembly.h"

#include <algorithm>

namespace weft::capture {

void SendAssembly::begin(const Origin& origin, const SendPart& part, bool wanted) {
  open_ = std::make_unique<Open>(part.message, origin.stamp, wanted, *budget_);
}

// Notes the extent of a part, and stores its bytes if the message is kept.
void SendAssembly::keep(const Origin& origin, const SendPart& part) {
  open_->last = origin.stamp;
  open_->ended = part.last;
  const std::uint64_t end = part.offset + part.bytes.size() + part.missing_bytes;
  if (end > max_message_bytes) open_->kept = false;
  open_->size = std::max(open_->size, std::min(end, max_message_bytes));
  if (!open_->kept) return;
  open_->bytes.place(part.offset, part.bytes);
  open_->bytes.place_cut(part.offset + part.bytes.size(), part.missing_bytes);
}

}  // namespace weft::capture
