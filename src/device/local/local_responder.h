// The receiving side of a connection within one host: takes the peer's messages out of the inbox,
// publishes receives, and makes the accesses that only this device can make.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/local/inbox.h"
#include "device/local/local_connection.h"
#include "device/local/local_requester.h"
#include "device/queue_pair/queue_pair_parts.h"

namespace weft::device {

// Covered by the queue pair's lock.
class LocalResponder {
 public:
  LocalResponder(QueuePairParts& parts, LocalConnection& connection, LocalRequester& requester)
      : parts_(parts),
        connection_(connection),
        requester_(requester),
        first_(parts.receives.own().first()),
        published_(first_) {}

  // Lets the peer use the receives that were posted since the last call.
  void publish_receives();
  // Takes the messages that are there. False: there may be more.
  bool drain();
  // The shortest way of Sends through the ring to receives of one piece, of which one is there.
  // False: drain() has to take the next one.
  [[nodiscard]] bool take_promptly(DirectPoll& poll);

  // The peer has broken a rule, or memory of a receive was unmapped: the connection ends with this
  // status.
  struct Failure {
    inbox::End reported = inbox::End::none;
    std::optional<ibv_event_type> event{};
  };
  [[nodiscard]] const std::optional<Failure>& failure() const { return failure_; }
  // The connection has ended: flushes the receive of a Send that has come in part.
  void flush();

 private:
  void publish(std::uint64_t number);
  void look_for_waiting_peer();
  [[nodiscard]] bool take_next(DirectPoll& poll);
  // False: the message stays in the ring, because it waits for a receive or has failed.
  [[nodiscard]] bool take(const inbox::MessageHeader& header);
  [[nodiscard]] bool take_send(const inbox::MessageHeader& header);
  [[nodiscard]] bool take_request(const inbox::MessageHeader& header);
  [[nodiscard]] bool find_receive();
  [[nodiscard]] bool has_payload(const inbox::AccessRequest& request, std::size_t bytes) const;
  [[nodiscard]] bool scatter_from_ring() const;
  // The peer has written what no version of this library writes.
  [[nodiscard]] bool broken();
  [[nodiscard]] iwarp::Status place(const iwarp::ReceiveRequest& receive,
                                    const inbox::MessageHeader& header);
  void answer(const inbox::AccessReply& reply);
  // Nothing: the request waits for a receive.
  [[nodiscard]] std::optional<inbox::AccessReply> carry_out(const inbox::AccessRequest& request,
                                                            const inbox::MessageHeader& header);
  [[nodiscard]] std::optional<inbox::AccessReply> write_and_notify(
      const inbox::AccessRequest& request, const inbox::MessageHeader& header);
  // Ends the connection, because of a request of the peer.
  inbox::AccessReply refuse(iwarp::Status status);
  [[nodiscard]] inbox::AccessReply copy_failed(RemoteCopy::Purpose purpose);
  [[nodiscard]] bool withdrawn(const inbox::AccessRequest& request) const;
  [[nodiscard]] int copy(RemoteCopy::Purpose purpose, const inbox::AccessRequest& request);
  // Whether the request is carried out with this message: parts before the last one change nothing
  // but the memory.
  [[nodiscard]] bool is_last(const inbox::AccessRequest& request) const;
  [[nodiscard]] inbox::AccessReply transfer(const inbox::AccessRequest& request);
  [[nodiscard]] inbox::AccessReply pull_send(const inbox::AccessRequest& request,
                                             const inbox::MessageHeader& header);
  void complete(std::uint64_t wr_id, iwarp::Status status, const inbox::MessageHeader& header,
                bool from_write);
  void fail(inbox::End reported, std::optional<ibv_event_type> event = {}) {
    if (!failure_) failure_ = {reported, event};
  }

  QueuePairParts& parts_;
  LocalConnection& connection_;
  LocalRequester& requester_;
  const std::uint64_t first_;  // receive in the queue pair's own count that is published as 0
  std::uint64_t published_;
  std::optional<Failure> failure_;
  std::uint64_t slots_since_look_ = 0;  // taken, see look_for_waiting_peer()
  bool halted_ = false;       // nothing behind the message at the reader is taken any more
  bool starving_ = false;     // the message at the reader waits for a receive of the shared queue
  std::uint64_t placed_ = 0;  // number of a Write that waits so, and is placed already
  std::uint64_t held_ = 0;    // number of a Send that has come in part; receive_ is its receive
  iwarp::ReceiveRequest receive_;
  std::vector<iovec> here_;
  std::vector<iovec> there_;
};

}  // namespace weft::device
