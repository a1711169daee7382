// Inbound data: RDMA Writes into granted memory, and the messages of queue 0 into posted receives.
//
// Where the connection allows it a message that finds no receive is held (see hold.h). Until it is
// placed, all later messages of queue 0 are held behind it; nothing else stops.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "iwarp/hold.h"
#include "iwarp/host.h"
#include "iwarp/segment.h"
#include "wire/terminate.h"

namespace weft::iwarp {

class Receiver {
 public:
  struct Options {
    std::size_t hold_bytes = 0;  // 0: a message without a receive ends the stream
    bool announcements = false;  // Immediate Data with a tag belongs to the Send behind it
    bool drops = false;          // what cannot be placed is passed over: see drops()
  };

  Receiver(const Options& options, Host& host) : options_(options), host_(host) {}

  // An RDMA Write.
  [[nodiscard]] TerminateRaised check_write(const Segment& segment);
  [[nodiscard]] TerminateRaised write_targets(const Segment& segment, std::uint32_t offset,
                                              std::uint32_t length, std::vector<iovec>& out);
  void deliver_write(const Segment& segment);

  // A Send of any kind.
  [[nodiscard]] TerminateRaised check_send(const Segment& segment);
  [[nodiscard]] TerminateRaised send_targets(const Segment& segment, std::uint32_t offset,
                                             std::uint32_t length, std::vector<iovec>& out);
  [[nodiscard]] TerminateRaised deliver_send(const Segment& segment);

  // The immediate behind an RDMA Write (RFC 7306 §6), or in front of a Send.
  [[nodiscard]] TerminateRaised immediate(const Segment& segment,
                                          const wire::ImmediateData& immediate);

  // On an unreliable connection a message that finds no receive, or does not fit it, or writes
  // where it may not, is dropped whole, and the stream goes on: whether this segment, which was
  // checked, belongs to such a message.
  [[nodiscard]] bool drops(const Segment& segment) const {
    return segment.tagged ? write_dropped_ : send_dropped_;
  }

  // A zero-length Send that only says that the peer is ready: it has an MSN, and no receive.
  void skip_send() { arrived(); }
  // A read or atomic arrived; it is somebody else's, and has its number.
  void count_request() { ++messages_; }
  // How many messages of the peer's requester have arrived whole.
  [[nodiscard]] std::uint64_t messages() const { return messages_; }

  // --- Receiver not ready (receiver_hold.cc)
  // ------------------------------------------------------

  [[nodiscard]] bool holds() const { return hold_ && !hold_->empty(); }
  // How many messages have ever been held, and were placed. What arrives behind a held message must
  // wait until as many are placed as were held then.
  [[nodiscard]] std::uint64_t held() const { return hold_ ? hold_->came() : 0; }
  [[nodiscard]] std::uint64_t placed() const { return hold_ ? hold_->gone() : 0; }

  // A message of queue 0 has begun and is not complete.
  [[nodiscard]] bool mid_message() const { return begun_; }

  // The number of the message that waits for a receive; 0 where none does.
  [[nodiscard]] std::uint64_t starving() const {
    if (!hold_ && !grant_wanted_) return 0;
    return starving_message();
  }
  // Of the oldest message that is not placed: what a Terminate is to quote, and how many messages
  // stand before it.
  [[nodiscard]] Segment waiting_segment() const;
  [[nodiscard]] std::uint64_t executed() const {
    return holds() ? hold_->front().number - 1 : messages_;
  }

  // The peer keeps its next message of queue 0 back until it knows of a receive. False: nonsense.
  [[nodiscard]] bool want_grant(std::uint32_t msn);
  // There may be receives now. A refusal concerns waiting_segment().
  [[nodiscard]] TerminateRaised settle();
  // The MSN to grant, once.
  [[nodiscard]] std::optional<std::uint32_t> take_grant() {
    return std::exchange(grant_, std::nullopt);
  }

  // The stream ended: a receive that was taken and not filled completes so.
  void flush(Status status = Status::flushed);

 private:
  [[nodiscard]] bool take_receive();
  [[nodiscard]] TerminateRaised begin_message(const Segment& segment);
  [[nodiscard]] TerminateRaised drop_message();
  [[nodiscard]] TerminateRaised begin_held(const Segment& segment);
  [[nodiscard]] TerminateRaised continue_held(const Segment& segment);
  [[nodiscard]] TerminateRaised adopt(const Segment& segment);
  [[nodiscard]] TerminateRaised place(HeldMessage& message);
  [[nodiscard]] TerminateRaised copy_held(const HeldMessage& message);
  [[nodiscard]] TerminateRaised announce(const wire::ImmediateData& immediate);
  [[nodiscard]] TerminateRaised fail_receive(Status status, wire::TerminateCode code);
  [[nodiscard]] TerminateRaised complete_send(const Segment& segment, std::uint64_t length_bytes,
                                              std::optional<std::uint32_t> immediate_be);
  void complete_immediate(const Segment& segment, std::uint64_t write_bytes,
                          std::uint32_t immediate_be);
  void complete(const ReceiveCompletion& completion);
  void arrived();
  [[nodiscard]] std::uint64_t starving_message() const;

  Options options_;
  Host& host_;
  std::uint32_t expected_msn_ = 1;
  std::uint64_t expected_offset_ = 0;  // in the message that is under way
  bool begun_ = false;                 // a message is under way
  bool holding_ = false;               // and is held
  bool taken_ = false;  // current_ holds a receive, for the oldest message not placed
  ReceiveRequest current_;
  std::uint64_t capacity_bytes_ = 0;
  std::uint64_t write_bytes_ = 0;  // of the last RDMA Write
  bool write_open_ = false;
  bool send_dropped_ = false;                  // the message of queue 0 that is under way
  bool write_dropped_ = false;                 // the last RDMA Write, and an immediate behind it
  std::optional<std::uint32_t> announced_be_;  // the immediate of the next Send
  std::uint64_t messages_ = 0;

  std::unique_ptr<Hold> hold_;  // made when first needed
  bool grant_wanted_ = false;
  std::optional<std::uint32_t> grant_;
};

}  // namespace weft::iwarp
