// Places inbound data: RDMA Writes into memory with remote access, and the messages of queue 0 into
// posted receives.
//
// Where the connection allows it, a message that finds no receive is held (see hold.h). Until it is
// placed, all later messages of queue 0 are held behind it. Everything else continues, except reads
// and atomics that arrive after a held message: see held().
//
// Errors are returned as the code that a Terminate should carry. The methods of each message are
// called per segment, in the order check, targets, deliver.
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
    bool announcements = false;  // Immediate Data with a tag belongs to the Send that follows it
    bool names_queues = false;   // ... and names the shared receive queue of what follows it
    bool drops = false;          // messages that cannot be placed are dropped: see drops()
  };

  Receiver(const Options& options, Host& host) : options_(options), host_(host) {}

  // A whole message in one segment, where nothing is special about it: the stream is reliable, the
  // message is in order, nothing is held, and a receive of one slice is there or the memory may be
  // written to. False: check_send() or check_write() has to look at it. There must be a payload.
  [[nodiscard]] bool take_send(std::uint32_t msn, Bytes payload);
  [[nodiscard]] bool take_write(std::uint32_t stag, std::uint64_t offset, Bytes payload);

  // An RDMA Write (RFC 5040 §5.1).
  [[nodiscard]] TerminateRaised check_write(const Segment& segment);
  [[nodiscard]] TerminateRaised write_targets(const Segment& segment, std::uint32_t offset,
                                              std::uint32_t length, std::vector<iovec>& out);
  void deliver_write(const Segment& segment);
  // The target of a Write cannot be accessed. The peer sees an error of bounds, as for an on-demand
  // region whose pages are missing.
  [[nodiscard]] static wire::TerminateCode write_lost() { return wire::terminate::tagged_bounds; }

  // A Send of any kind (RFC 5040 §5.3). check_send() takes a receive, or begins to hold the
  // message.
  [[nodiscard]] TerminateRaised check_send(const Segment& segment);
  [[nodiscard]] TerminateRaised send_targets(const Segment& segment, std::uint32_t offset,
                                             std::uint32_t length, std::vector<iovec>& out);
  [[nodiscard]] TerminateRaised deliver_send(const Segment& segment);
  // The memory of the receive cannot be accessed: it completes in error.
  [[nodiscard]] wire::TerminateCode send_lost();

  // Immediate Data, in one segment: it follows an RDMA Write (RFC 7306 §6), announces the immediate
  // of the next Send, or names a shared receive queue.
  [[nodiscard]] TerminateRaised immediate(const Segment& segment,
                                          const wire::ImmediateData& immediate);

  // Whether this segment, which was checked, belongs to a message that is dropped. On an unreliable
  // connection a message is dropped whole when it finds no receive, does not fit it, or writes
  // where it may not, and the stream continues.
  [[nodiscard]] bool drops(const Segment& segment) const {
    return segment.tagged ? write_dropped_ : send_dropped_;
  }

  // Counts the Send of a ready-to-receive message (RFC 6581 §5.1): it has an MSN but takes no
  // receive.
  void skip_send() { arrived(); }
  // Counts a read or atomic, which the Responder handles.
  void count_request() { ++messages_; }
  // How many messages of the peer's requester have arrived whole, of every kind.
  [[nodiscard]] std::uint64_t messages() const { return messages_; }

  // --- Receiver not ready: receiver_hold.cc

  [[nodiscard]] bool holds() const { return hold_ && !hold_->empty(); }
  // How many messages have ever been held, and how many of these were placed. A read or atomic that
  // arrives after a held message must not be answered before it, since the answer would prove that
  // the message was placed: it waits until placed() has reached the held() of its arrival.
  [[nodiscard]] std::uint64_t held() const { return hold_ ? hold_->begun() : 0; }
  [[nodiscard]] std::uint64_t placed() const { return hold_ ? hold_->removed() : 0; }

  // A message of queue 0 has begun and its last segment has not arrived.
  [[nodiscard]] bool mid_message() const { return begun_; }

  // The number of the message that waits for a receive, here or at the peer; 0 where none does.
  [[nodiscard]] std::uint64_t starving() const {
    if (!hold_ && !grant_wanted_) return 0;
    return starving_message();
  }
  // The segment of the oldest message that is not placed, for a Terminate to quote.
  [[nodiscard]] Segment waiting_segment() const;
  // How many messages were carried out: all before the oldest one that is held.
  [[nodiscard]] std::uint64_t executed() const {
    return holds() ? hold_->front().number() - 1 : messages_;
  }

  // The peer asks for a grant: it does not send the message of queue 0 with this MSN before it
  // knows of a receive (see peer_window.h). False: the request makes no sense, and the stream must
  // end.
  [[nodiscard]] bool want_grant(std::uint32_t msn);
  // Receives may have been posted: places held messages, and takes a receive for a grant. An error
  // concerns waiting_segment().
  [[nodiscard]] TerminateRaised settle();
  // The MSN to grant; returned once.
  [[nodiscard]] std::optional<std::uint32_t> take_grant() {
    return std::exchange(grant_, std::nullopt);
  }

  // Sends that arrived whole and were not placed: the stream ended before a receive was posted, or
  // they came when nothing was to be placed any more.
  struct Unreceived {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] const Unreceived& unreceived() const { return unreceived_; }
  // A segment of a Send was taken off the stream and thrown away.
  void note_discarded(const Segment& segment);

  // The stream has ended: a receive that was taken and is not filled completes with `status`.
  void flush(Status status = Status::flushed);

 private:
  [[nodiscard]] bool take_receive();
  [[nodiscard]] TerminateRaised begin_message(const Segment& segment);
  [[nodiscard]] TerminateRaised drop_message();
  [[nodiscard]] TerminateRaised begin_held(const Segment& segment);
  [[nodiscard]] TerminateRaised continue_held(const Segment& segment);
  [[nodiscard]] TerminateRaised adopt(const Segment& segment);
  [[nodiscard]] TerminateRaised place_held();
  [[nodiscard]] TerminateRaised copy_held();
  [[nodiscard]] TerminateRaised announce(const wire::ImmediateData& immediate);
  [[nodiscard]] TerminateRaised name_queue(const wire::ImmediateData& immediate);
  wire::TerminateCode fail_receive(Status status, wire::TerminateCode code);
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
  std::uint64_t expected_offset_ = 0;  // in the message of queue 0 that is arriving
  bool begun_ = false;                 // such a message is arriving
  bool holding_ = false;               // ... and goes into the hold
  bool taken_ = false;                 // current_ is a receive for the oldest message not placed
  ReceiveRequest current_;
  std::uint64_t capacity_bytes_ = 0;           // of current_
  std::uint64_t write_bytes_ = 0;              // of the last RDMA Write
  bool write_open_ = false;                    // its last segment has not arrived
  bool send_dropped_ = false;                  // the message of queue 0 that is arriving
  bool write_dropped_ = false;                 // the last RDMA Write, and an immediate after it
  std::optional<std::uint32_t> announced_be_;  // the immediate of the next Send
  std::uint32_t queue_ = 0;                    // that the peer has named last
  std::uint64_t messages_ = 0;

  std::unique_ptr<Hold> hold_;  // created when first needed
  bool grant_wanted_ = false;
  std::optional<std::uint32_t> grant_;  // see take_grant()
  Unreceived unreceived_;
};

}  // namespace weft::iwarp
