// Whole Send messages of one side of one connection, from their parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "weft/capture/assembled.hpp"
#include "weft/capture/byte_map.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

class SendAssembly {
 public:
  // A message with all its parts, or as much of it as was seen. `tail_missing`: its last part was
  // not seen, so how long it is nobody knows.
  struct Message {
    Stamp first;
    Stamp last;
    Bytes bytes;  // valid until the next call
    bool whole = true;
    bool tail_missing = false;
    const Assembled* assembled = nullptr;  // the same bytes with their flaws, unless whole
  };

  // Of a message that is kept at all, so many bytes are. What runs over RPC-over-RDMA sends at most
  // a few KiB at a time; longer messages are somebody else's.
  static constexpr std::uint64_t max_message_bytes = 1U << 20;

  // `budget` must outlive this.
  explicit SendAssembly(Budget& budget) : budget_(&budget) {}

  // Calls take(const Message&) for each message that ends: at most two, for a part of a new message
  // ends the one before. A message of which `wanted(first bytes)` says no is not kept, nor is one
  // whose beginning was not seen.
  template <typename Wanted, typename Take>
  void add(const Origin& origin, const SendPart& part, Wanted wanted, Take take) {
    if (open_ && open_->message != part.message) end(take);
    if (!open_ && part.offset == 0 && part.last && part.missing_bytes == 0) {
      take(Message{origin.stamp, origin.stamp, part.bytes});
      return;
    }
    if (!open_) begin(origin, part, part.offset == 0 && wanted(part.bytes));
    keep(origin, part);
    if (part.last) end(take);
  }
  // Ends what is open.
  template <typename Take>
  void finish(Take take) {
    if (open_) end(take);
  }

 private:
  struct Open {
    Open(std::uint64_t number, Stamp stamp, bool wanted, Budget& budget)
        : message(number), first(stamp), last(stamp), kept(wanted), bytes(budget) {}
    std::uint64_t message;
    Stamp first;
    Stamp last;
    bool kept;
    ByteMap bytes;
    std::uint64_t size = 0;  // where the last part that was seen ends
    bool ended = false;
  };

  template <typename Take>
  void end(Take take) {
    if (open_->kept) {
      const Assembled whole = open_->bytes.take(0, open_->size);
      take(Message{open_->first, open_->last, whole.bytes(), whole.whole() && open_->ended,
                   !open_->ended, &whole});
    }
    open_.reset();
  }
  void begin(const Origin& origin, const SendPart& part, bool wanted);
  void keep(const Origin& origin, const SendPart& part);

  Budget* budget_;
  std::unique_ptr<Open> open_;
};

}  // namespace weft::capture
