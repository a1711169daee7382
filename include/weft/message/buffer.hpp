// Buffer and Received: registered memory for messages, and messages that have arrived.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "weft/export.hpp"

namespace weft::message {

class Received;

namespace detail {
struct Block;
class Link;
}  // namespace detail

// A buffer of the loop's pool, to be filled and sent, or with a message that has arrived. It has
// one owner. A message that is sent from it shares the memory until it is sent or has failed, so
// the buffer may be destroyed at any time, in any thread. It may outlive its connection and its
// loop.
class Buffer {
 public:
  // An empty buffer, without memory.
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : block_(std::move(other.block_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    block_ = std::move(other.block_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~Buffer() = default;

  // False for an empty buffer and one that was moved from.
  [[nodiscard]] explicit operator bool() const { return block_ != nullptr; }
  // The bytes must not be changed while a message is sent from the buffer.
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, bytes_}; }
  // The length of bytes().
  [[nodiscard]] std::size_t size_bytes() const { return bytes_; }
  // Shortens the buffer: a message is as long as its buffer. No effect if it is shorter already.
  void truncate(std::size_t bytes) { bytes_ = bytes < bytes_ ? bytes : bytes_; }

 private:
  friend class Received;
  friend class detail::Link;
  Buffer(std::shared_ptr<detail::Block> block, std::byte* data, std::size_t bytes)
      : block_(std::move(block)), data_(data), bytes_(bytes) {}

  std::shared_ptr<detail::Block> block_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// A message that has arrived.
class Received {
 public:
  Received(Received&&) noexcept = default;
  Received& operator=(Received&&) noexcept = default;

  // As the sender has set it: SendOptions::type.
  [[nodiscard]] std::uint32_t type() const { return type_; }
  // As the sender has set it: SendOptions::tag.
  [[nodiscard]] std::uint64_t tag() const { return tag_; }
  // Valid as long as this object, in a callback until the callback returns.
  [[nodiscard]] std::span<std::byte> bytes() const { return buffer_.bytes(); }
  // The length of the message; 0 after keep().
  [[nodiscard]] std::size_t size_bytes() const { return buffer_.size_bytes(); }
  // Moves the memory to the caller, who may hold it as long as necessary; bytes() is empty then.
  // Kept memory counts against Limits::pool_bytes.
  [[nodiscard]] WEFT_API Buffer keep();

 private:
  friend class detail::Link;
  Received(Buffer buffer, std::uint32_t type, std::uint64_t tag)
      : buffer_(std::move(buffer)), type_(type), tag_(tag) {}

  Buffer buffer_;
  std::uint32_t type_;
  std::uint64_t tag_;
};

}  // namespace weft::message
