#include "message/send_slots.h"

#include <cstring>
#include <utility>

#include "base/size.h"

namespace weft::message::detail {
namespace {

// The first message of a frame: the only one, unless messages are joined.
Record& record_of(const Emission& emission) {
  return static_cast<Record&>(*emission.messages.front());
}

}  // namespace

void SendSlots::open(std::shared_ptr<Device> device, std::size_t max_slices) {
  device_ = std::move(device);
  max_slices_ = max_slices;
  constexpr std::size_t bytes = count * Frame::largest_bytes;
  memory_.reset(new std::byte[bytes]);
  headers_.emplace(device_->domain.register_memory(std::span(memory_.get(), bytes)));
  posted_.resize(count);
  for (std::uint32_t slot = count; slot > 0; --slot) free_.push_back(slot - 1);
}

void SendSlots::close() {
  headers_.reset();
  memory_.reset();
  posted_.clear();
  free_.clear();
}

// Lets the peer read exactly the bytes of the message; ends when the message is sent or has failed.
void SendSlots::grant(Record& record, Frame& frame) {
  for (const auto& piece : record.pieces) {
    record.granted.push_back(
        device_->domain.register_memory(std::span(piece.at, to_size(piece.bytes)),
                                        static_cast<verbs::Access>(IBV_ACCESS_REMOTE_READ)));
    frame.pieces.push_back(record.granted.back().remote());
  }
}

// Copies joined messages into one block: a slice for each would be more than a request may have.
verbs::LocalSlice SendSlots::join(const Emission& emission, Posted& posted) {
  const Frame& frame = emission.frame;
  posted.copied = device_->pool->take_block();
  const Block& block = *posted.copied;
  const std::size_t bytes = frame.encode({block.data, block.bytes});
  for (std::size_t i = 0; i < frame.parts.size(); ++i) {
    std::byte* into = block.data + frame.parts[i].offset;
    for (const auto& piece : static_cast<const Record&>(*emission.messages[i]).pieces) {
      std::memcpy(into, piece.at, to_size(piece.bytes));
      into += piece.bytes;
    }
  }
  return {reinterpret_cast<std::uint64_t>(block.data), static_cast<std::uint32_t>(bytes),
          block.lkey};
}

// Copies the header and the pieces of a message into one block, where the device cannot gather so
// many pieces. The peer's receives have this size, so it fits into a block.
verbs::LocalSlice SendSlots::gather(const Emission& emission, Posted& posted) {
  posted.copied = device_->pool->take_block();
  const Block& block = *posted.copied;
  std::byte* into = block.data;
  into += emission.frame.encode({block.data, block.bytes});
  for (const auto& piece : record_of(emission).pieces) {
    std::memcpy(into, piece.at, to_size(piece.bytes));
    into += piece.bytes;
  }
  return {reinterpret_cast<std::uint64_t>(block.data),
          static_cast<std::uint32_t>(into - block.data), block.lkey};
}

// Copies a short message behind its header.
verbs::LocalSlice SendSlots::copy(const Emission& emission, std::uint32_t slot) {
  static_assert(Frame::payload_offset + Record::short_bytes <= Frame::largest_bytes);
  const std::size_t at = slot * Frame::largest_bytes;
  const auto into = headers_->elements().subspan(at, Frame::largest_bytes);
  const std::size_t header_bytes = emission.frame.encode(into);
  const Record::Piece& piece = record_of(emission).pieces.front();
  std::memcpy(into.data() + header_bytes, piece.at, to_size(piece.bytes));
  return headers_->slice(at, header_bytes + to_size(piece.bytes));
}

// What can throw comes first: the slot is taken only when the frame is complete.
std::span<const verbs::LocalSlice> SendSlots::prepare(Emission& emission, Slices& slices) {
  const Kind kind = emission.frame.kind;
  const std::uint32_t slot = free_.back();
  Posted posted;
  std::size_t used = 0;
  const bool gathers = kind == Kind::message && record_of(emission).pieces.size() >= max_slices_;
  const bool copies = kind == Kind::message && record_of(emission).is_short_copy();
  if (kind == Kind::joined) {
    slices[used++] = join(emission, posted);
  } else if (gathers) {
    slices[used++] = gather(emission, posted);
  } else if (copies) {
    slices[used++] = copy(emission, slot);
  } else {
    if (kind == Kind::offer) grant(record_of(emission), emission.frame);
    const std::size_t at = slot * Frame::largest_bytes;
    const auto header = headers_->elements().subspan(at, Frame::largest_bytes);
    slices[used++] = headers_->slice(at, emission.frame.encode(header));
  }
  if (kind == Kind::message && !gathers && !copies) {
    for (const auto& piece : record_of(emission).pieces) {
      slices[used++] = {reinterpret_cast<std::uint64_t>(piece.at),
                        static_cast<std::uint32_t>(piece.bytes), piece.lkey};
    }
  }
  free_.pop_back();
  if (kind != Kind::offer) posted.messages = emission.messages.size();
  if (kind == Kind::close) closing_slot_ = slot;
  posted_[slot] = std::move(posted);
  return std::span(slices).first(used);
}

// Also releases the block of joined messages, by way of the returned Posted.
std::size_t SendSlots::complete(std::uint32_t slot) {
  free_.push_back(slot);
  return std::exchange(posted_[slot], {}).messages;
}

}  // namespace weft::message::detail
