// Assembles the Send messages of one side of one connection from their parts.
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
  // A message with all its parts, or with those that were seen. `tail_missing`: its last part was
  // not seen, so its length is unknown, or it is longer than max_message_bytes.
  struct Message {
    Stamp first;
    Stamp last;
    Bytes bytes;  // valid until the next call
    bool whole = true;
    bool tail_missing = false;
    // The same bytes with their flaws; nullptr if the message is whole.
    const Assembled* assembled = nullptr;
  };

  // The rest of a longer message is not kept. The upper protocols of RPC-over-RDMA send a few KiB
  // inline at most.
  static constexpr std::uint64_t max_message_bytes = 1U << 20;

  // `budget` must outlive this object.
  explicit SendAssembly(Budget& budget) : budget_(&budget) {}

  // Calls take(const Message&) for each message that ends: twice at most, because a part of a new
  // message ends the one before. A message is not kept if `wanted(first bytes)` returns false, or
  // if its beginning was not seen.
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
  // Ends the open message.
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
    std::uint64_t size = 0;  // end of the last part that was kept
    bool ended = false;
    bool shortened = false;  // it is longer than max_message_bytes
  };

  template <typename Take>
  void end(Take take) {
    if (open_->kept) {
      const Assembled whole = open_->bytes.take(0, open_->size);
      const bool tail_missing = !open_->ended || open_->shortened;
      take(Message{open_->first, open_->last, whole.bytes(), whole.whole() && !tail_missing,
                   tail_missing, &whole});
    }
    open_.reset();
  }
  void begin(const Origin& origin, const SendPart& part, bool wanted);
  void keep(const Origin& origin, const SendPart& part);

  Budget* budget_;
  std::unique_ptr<Open> open_;
};

}  // namespace weft::capture
