// What is left of a sender's credits, for each way in which they can be seen on the wire.
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

// InfiniBand's end-to-end credits (Architecture Specification, volume 1, §9.7.7.2): with what is
// acknowledged done, so many messages may be under way. What was under way before the first
// acknowledgement with credits is not counted, so that too few rather than too many waits are seen.
class EndToEndCredits {
 public:
  // A packet of a request; `first` of its message. `takes_receive`: with this packet the message
  // is known to need one.
  void sent(const Stamp& stamp, std::uint32_t psn, bool first, bool last, bool takes_receive);
  void given(const Stamp& stamp, const CreditUpdate& update);
  [[nodiscard]] const CreditWatch& watch() const { return watch_; }

 private:
  // More than the largest number of credits that an acknowledgement can tell.
  static constexpr std::size_t most_open = 65'536;
  struct Message {
    std::uint32_t psn = 0;  // of its last packet so far
    bool whole = false;
  };
  [[nodiscard]] bool none_left() const { return open_.size() >= credits_; }

  std::deque<Message> open_;
  std::uint32_t credits_ = 0;
  std::optional<std::uint32_t> acknowledged_;
  CreditWatch watch_;
};

// Credits of Weft's own protocols (docs/message-protocol.md, docs/stream-protocol.md), which both
// sides tell each other when they connect. One side's as a sender.
class ToldCredits {
 public:
  enum class Protocol : std::uint8_t { none, message, stream };
  // From the private data of both sides.
  [[nodiscard]] static Protocol protocol_of(const Connection& connection);

  ToldCredits() = default;
  // `peer`: the private data of the side that gives the credits.
  ToldCredits(Protocol protocol, Bytes peer);

  // Uses one receive, and of a stream so many bytes of the peer's ring. False: more than there was,
  // so that the capture and this account do not agree.
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
