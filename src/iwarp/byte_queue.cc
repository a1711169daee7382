#include "iwarp/byte_queue.h"

#include <algorithm>

namespace weft::iwarp {

// Blocks never move, so memory that map() has named stays valid while bytes are added behind it.
void ByteQueue::extend(std::size_t bytes) {
  while (begin_ + size_ + bytes > blocks_.size() * block_bytes) {
    blocks_.push_back(std::unique_ptr<Block>(new Block));  // its bytes need no value
  }
  size_ += bytes;
}

void ByteQueue::drop(std::size_t bytes) {
  begin_ += bytes;
  size_ -= bytes;
  while (begin_ >= block_bytes) {
    blocks_.pop_front();
    begin_ -= block_bytes;
  }
  // An empty queue keeps no block: a connection that held a message once must not keep its memory.
  if (size_ > 0) return;
  blocks_.clear();
  begin_ = 0;
}

// A run ends with its block; callers go on with the next one.
std::span<std::byte> ByteQueue::run(std::size_t at) const {
  const std::size_t position = begin_ + at;
  const std::size_t in_block = position % block_bytes;
  return std::span(*blocks_[position / block_bytes])
      .subspan(in_block, std::min(block_bytes - in_block, size_ - at));
}

void ByteQueue::map(std::size_t at, std::size_t length, std::vector<iovec>& out) const {
  while (length > 0) {
    const auto piece = run(at).first(std::min(run(at).size(), length));
    out.push_back({piece.data(), piece.size()});
    at += piece.size();
    length -= piece.size();
  }
}

}  // namespace weft::iwarp
