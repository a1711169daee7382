// Accounts of the credits that a sender has left, for each way in which the wire shows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/bytes.h"
#include "capture/findings/credit_watch.h"
#include "weft/capture/connection.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

// InfiniBand's end-to-end credits (Architecture Specification, volume 1, §9.7.7.2): an
// acknowledgement states how many messages may be under way after the acknowledged one. Messages
// sent before the first such acknowledgement are not counted, so the account finds too few waits
// rather than too many.
class EndToEndCredits {
 public:
  // A packet of a request was sent. `first`: it is the first of its message. `takes_receive`: this
  // packet shows that the message needs a receive.
  void sent(const Stamp& stamp, std::uint32_t psn, bool first, bool last, bool takes_receive);
  void given(const Stamp& stamp, const CreditUpdate& update);
  [[nodiscard]] const CreditWatch& watch() const { return watch_; }

 private:
  // More than the largest number of credits that an acknowledgement can encode.
  static constexpr std::size_t most_open = 65'536;
  struct Message {
    std::uint32_t psn = 0;  // PSN of its last packet so far
    bool whole = false;
  };
  [[nodiscard]] bool none_left() const { return open_.size() >= credits_; }

  std::deque<Message> open_;
  std::uint32_t credits_ = 0;
  std::optional<std::uint32_t> acknowledged_;
  CreditWatch watch_;
};

// Credits of Weft's own protocols (docs/message-protocol.md, docs/stream-protocol.md), as one side
// uses them for sending. Both sides announce them when they connect.
class AnnouncedCredits {
 public:
  enum class Protocol : std::uint8_t { none, message, stream };
  // Recognises the protocol by the private data of both sides.
  [[nodiscard]] static Protocol protocol_of(const Connection& connection);

  AnnouncedCredits() = default;
  // `peer` is the private data of the side that grants the credits.
  AnnouncedCredits(Protocol protocol, Bytes peer);

  // Uses one receive and, on a stream, `bytes` of the peer's ring. Returns false if that is more
  // than was left: then the account does not match the capture.
  [[nodiscard]] bool sent(const Stamp& stamp, std::uint32_t bytes);
  void given(const Stamp& stamp, std::uint32_t receives, std::uint32_t bytes);
  [[nodiscard]] const CreditWatch& watch() const { return watch_; }

 private:
  [[nodiscard]] bool none_left() const { return receives_ == 0 || (stream_ && bytes_ == 0); }

  bool stream_ = false;
  std::uint64_t receives_ = 0;
  std::uint64_t bytes_ = 0;
  CreditWatch watch_;
};

}  // namespace weft::capture
