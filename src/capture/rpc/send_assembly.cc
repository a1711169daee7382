#include "capture/rpc/send_assembly.h"

#include <algorithm>

#include "base/size.h"

namespace weft::capture {

void SendAssembly::begin(const Origin& origin, const SendPart& part, bool wanted) {
  open_ = std::make_unique<Open>(part.message, origin.stamp, wanted, *budget_);
}

// Notes the extent of a part, and stores its bytes up to the limit if the message is kept.
void SendAssembly::keep(const Origin& origin, const SendPart& part) {
  open_->last = origin.stamp;
  open_->ended = part.last;
  const std::uint64_t end = part.offset + part.bytes.size() + part.missing_bytes;
  if (end > max_message_bytes) open_->shortened = true;
  open_->size = std::max(open_->size, std::min(end, max_message_bytes));
  if (!open_->kept || part.offset >= max_message_bytes) return;
  const std::uint64_t room = max_message_bytes - part.offset;
  const Bytes bytes = part.bytes.first(to_size(std::min<std::uint64_t>(part.bytes.size(), room)));
  open_->bytes.place(part.offset, bytes);
  if (part.lost) return;
  const std::uint64_t missing = std::min(part.missing_bytes, room - bytes.size());
  open_->bytes.place_cut(part.offset + bytes.size(), missing);
}

}  // namespace weft::capture
