#include "message/message_fetcher.h"

#include <algorithm>
#include <utility>

#include "message/session.h"

namespace weft::message::detail {
namespace {

// Longest read. A message is cut, so that one long message does not keep other reads waiting.
constexpr std::uint64_t max_read_bytes = std::uint64_t{16} << 20;

}  // namespace

InMessage* MessageFetcher::next_message(Session& session) {
  if (!next_) next_ = session.next_fetch();
  return next_;
}

// Several messages may be fetched at a time; they complete in the order in which they were begun.
void MessageFetcher::begin(BlockPointer block) {
  fetches_.push_back({std::exchange(next_, nullptr), std::move(block)});
}

// One read covers at most one piece, because each piece has its own rkey.
MessageFetcher::Read MessageFetcher::next_read() {
  Fetch& fetch = fetches_.back();
  const verbs::RemoteSlice& piece = fetch.message->pieces[fetch.piece];
  const std::uint64_t bytes = std::min(piece.size_bytes() - fetch.offset, max_read_bytes);
  const Read read{.into = {reinterpret_cast<std::uint64_t>(fetch.block->data + fetch.requested),
                           static_cast<std::uint32_t>(bytes), fetch.block->lkey},
                  .from = piece.slice(fetch.offset, bytes)};
  fetch.requested += bytes;
  fetch.offset += bytes;
  ++fetch.reads;
  ++reads_;
  if (fetch.offset == piece.size_bytes()) {
    ++fetch.piece;
    fetch.offset = 0;
  }
  return read;
}

// Reads of one queue pair complete in the order in which they were posted.
InMessage* MessageFetcher::complete_read() {
  --reads_;
  Fetch& fetch = fetches_.front();
  if (--fetch.reads > 0 || fetch.requested < fetch.message->bytes) return nullptr;
  InMessage* const message = fetch.message;
  complete_.push_back(std::move(fetch.block));
  fetches_.pop_front();
  return message;
}

BlockPointer MessageFetcher::take_complete() {
  BlockPointer block = std::move(complete_.front());
  complete_.pop_front();
  return block;
}

void MessageFetcher::abandon() {
  fetches_.clear();
  next_ = nullptr;
}

}  // namespace weft::message::detail
