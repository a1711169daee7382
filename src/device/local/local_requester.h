// The send queue of a connection within one host: executes requests by accessing the peer's memory
// and inbox itself.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ring_queue.h"
#include "device/local/access_counts.h"
#include "device/local/grant_table.h"
#include "device/local/inbox.h"
#include "device/local/local_connection.h"
#include "device/local/mapped_access.h"
#include "device/local/peer_receives.h"
#include "device/local/receive_wait.h"
#include "device/queue_pair/queue_pair_parts.h"
#include "device/queue_pair/waiting_work.h"

namespace weft::device {

// Requests execute in the order of posting. One that cannot execute yet (no receive, no room in the
// inbox, a reply to come) holds up those behind it. Covered by the queue pair's lock.
class LocalRequester {
 public:
  LocalRequester(QueuePairParts& parts, LocalConnection& connection)
      : parts_(parts),
        connection_(connection),
        receives_(connection),
        mapped_(connection.peer(), connection.process(), connection.remote()),
        counts_(connection.peer(), connection.grants()),
        wait_(connection.peer()) {}

  // Executes the request, or keeps it with a copy of its inline data. The caller has checked it
  // with iwarp::Requester::acceptable(). `more`: a Write may wait for others, until advance().
  void post(const iwarp::WorkRequest& work, bool more);
  // The shortest way of a Send in the ring, or of a Write to memory that both map, that nothing
  // holds up, and that needs no advance(). False: it goes the usual way, from its beginning. The
  // caller has checked that it has one piece.
  [[nodiscard]] bool post_promptly(const ibv_send_wr& request, bool signaled);
  // Whether requests wait that advance() may execute.
  [[nodiscard]] bool waits() const { return !pending_.empty() && !reply_awaited_ && !failure_; }
  // Executes what can be executed by now, and ends what the requests of a list share. A post() that
  // leaves nothing behind that waits() is followed by a call, under the same lock.
  void advance();
  // Ends what the requests of a list share: the peer may withdraw memory without waiting for this
  // end.
  void end_accesses();
  // How often Sends that find no receive are retried; before, the peer's number counts.
  void set_retries(std::uint8_t retries) { retries_ = retries; }
  // The peer's device has answered since the last call of take_answer().
  [[nodiscard]] bool is_answered() const;
  void take_answer();
  // Memory here is being deregistered: returns when the peer's device does not use it for a request
  // any more. A request that names it then fails, as if the memory had not been registered.
  void withdraw_request(const std::byte* base, std::size_t length_bytes);
  [[nodiscard]] bool idle() const { return pending_.empty() && under_way_.empty(); }
  // Whether a request waits for room in the peer's inbox.
  [[nodiscard]] bool awaits_room() const { return awaits_room_; }
  // Messages, or a request without room for one, wait until the peer takes messages.
  [[nodiscard]] bool awaits_taking() const { return !under_way_.empty() || awaits_room_; }
  // Completes the messages that the peer has taken by now.
  void retire_taken();
  // The peer has taken none since the last call, although it lacks no receive.
  [[nodiscard]] bool stalls();
  // The peer wakes this end for each message that it takes, also where no program sleeps.
  void watch_taking() { watches_taking_ = true; }
  void add_counters(QueuePairCounters& counters) const { wait_.add_counters(counters); }
  // Whether a Send waits for a receive of the peer.
  [[nodiscard]] bool awaits_receive() const { return wait_.waits(); }

  // The requests that were executed with success since the connection began, before release().
  [[nodiscard]] std::uint64_t executed() const {
    return posted_ - pending_.size() - under_way_.size() - (failure_ ? 1 : 0);
  }

  // A request has failed, so the connection must end.
  struct Failure {
    iwarp::EndReason reason = iwarp::EndReason::none;
    inbox::End reported = inbox::End::none;  // to be reported to the peer
  };
  [[nodiscard]] const std::optional<Failure>& failure() const { return failure_; }

  // Hands out what has not executed, in the order of posting, and keeps none of it.
  template <typename Take>
  void release(Take take) {
    for (; !under_way_.empty(); under_way_.pop_front()) {
      const UnderWay& sent = under_way_.front();
      take(iwarp::WorkRequest{.wr_id = sent.wr_id, .operation = sent.operation}, give_covered());
    }
    for (; !pending_.empty(); pending_.pop_front()) take(pending_.front().request, give_covered());
  }

  // When advance() must be called next because a Send waits for a receive; UINT64_MAX: never.
  [[nodiscard]] std::uint64_t deadline_ns() const { return deadline_ns_; }

 private:
  // under_way: it is in under_way_, and completes when the peer has taken it.
  enum class Outcome : std::uint8_t { done, blocked, under_way };

  [[nodiscard]] static std::uint8_t flags_of(const iwarp::WorkRequest& work);

  // A message to a peer that matches it itself, or what follows requests of a staged connection in
  // the ring. It completes when the peer has taken it.
  struct UnderWay {
    std::uint64_t end = 0;  // position behind it
    std::uint64_t wr_id = 0;
    std::uint64_t length_bytes = 0;
    iwarp::Operation operation = iwarp::Operation::send;
    bool signaled = true;
    // Of a Send whose payload the peer fetches; 0: of others.
    std::uint64_t request = 0;
    std::uint64_t read = 0;  // of a Read with a place in the staging area, from 1; 0: of others
    std::vector<iwarp::LocalSlice> slices;  // of both
  };

  [[nodiscard]] Outcome execute(const iwarp::WorkRequest& work);
  void execute_pending();
  [[nodiscard]] std::size_t execute_writes();
  [[nodiscard]] bool add_write(const iwarp::WorkRequest& work);
  [[nodiscard]] bool gather(const iwarp::WorkRequest& work);
  [[nodiscard]] bool uses(const std::byte* base, std::size_t length_bytes);
  void withdraw(std::uint64_t first, std::uint64_t last);
  [[nodiscard]] bool add_local(const iwarp::WorkRequest& work);
  [[nodiscard]] Outcome execute_send(const iwarp::WorkRequest& work);
  [[nodiscard]] bool send_promptly(const ibv_send_wr& request);
  [[nodiscard]] bool write_promptly(const ibv_send_wr& request);
  [[nodiscard]] const void* readable(const ibv_send_wr& request);
  [[nodiscard]] Outcome send_to_match(const iwarp::WorkRequest& work);
  [[nodiscard]] Outcome send_to_fetch(const iwarp::WorkRequest& work);
  UnderWay& add_under_way(const iwarp::WorkRequest& work);
  void watch_oldest();
  void fail_oldest(iwarp::Status status, Failure failure);
  [[nodiscard]] Outcome execute_send_invalidate(const iwarp::WorkRequest& work);
  [[nodiscard]] Outcome execute_write(const iwarp::WorkRequest& work);
  [[nodiscard]] Outcome execute_read(const iwarp::WorkRequest& work);
  [[nodiscard]] Outcome access_directly(const iwarp::WorkRequest& work, std::uint32_t right);
  [[nodiscard]] GrantView::Found look_up(const iwarp::WorkRequest& work, std::uint32_t right);
  [[nodiscard]] bool write_mapped(const iwarp::WorkRequest& work);
  // Whether the last region has this STag, and is memory of a file.
  [[nodiscard]] bool is_last_mapped(std::uint32_t stag) const {
    return known_.stag == stag && known_.file.valid();
  }
  [[nodiscard]] bool place_mapped(std::uint32_t stag, std::uint64_t offset,
                                  std::span<const iovec> here);
  [[nodiscard]] bool is_mapped(const iwarp::WorkRequest& work);
  [[nodiscard]] int transfer(const GrantView::Found& found, iwarp::RemoteRight right);
  [[nodiscard]] Outcome execute_atomic(const iwarp::WorkRequest& work);
  [[nodiscard]] Outcome request_access(const iwarp::WorkRequest& work);
  [[nodiscard]] bool push_request(const iwarp::WorkRequest& work, std::uint8_t flags);
  [[nodiscard]] static inbox::AccessRequest access_request(const iwarp::WorkRequest& work,
                                                           std::uint64_t length_bytes);
  [[nodiscard]] Outcome request_staged(const iwarp::WorkRequest& work);
  [[nodiscard]] Outcome request_in_ring(const iwarp::WorkRequest& work);
  [[nodiscard]] Outcome execute_behind(const iwarp::WorkRequest& work);
  [[nodiscard]] Outcome execute_behind_staged(const iwarp::WorkRequest& work);
  [[nodiscard]] static bool fits_in_ring(const iwarp::WorkRequest& work,
                                         std::uint64_t length_bytes);
  [[nodiscard]] static bool fits_in_place(const iwarp::WorkRequest& work,
                                          std::uint64_t length_bytes);
  [[nodiscard]] Outcome read_to_place(const iwarp::WorkRequest& work);
  [[nodiscard]] bool take_read(const UnderWay& sent);
  [[nodiscard]] bool fill_part(const iwarp::WorkRequest& work);
  void ask_for_part(const iwarp::WorkRequest& work);
  [[nodiscard]] bool take_part(const iwarp::WorkRequest& work);
  [[nodiscard]] bool give_up(std::uint64_t starving);
  void take_reply(const inbox::AccessReply& reply);
  [[nodiscard]] Outcome wait_for_receive(const iwarp::WorkRequest& work);
  [[nodiscard]] bool wait_is_over(std::uint64_t length_bytes);
  void note_refused(const iwarp::WorkRequest& work, std::uint32_t right);
  void receive_found();
  [[nodiscard]] bool room_for(std::size_t payload_bytes);
  [[nodiscard]] bool map_receive(const inbox::Receive& receive);
  [[nodiscard]] bool takes_whole(const inbox::Receive& receive);
  [[nodiscard]] int place();
  [[nodiscard]] int copy(RemoteCopy::Purpose purpose);
  bool push(inbox::Kind kind, const iwarp::WorkRequest& work, std::span<const iovec> payload,
            std::uint8_t flags = 0);
  [[nodiscard]] inbox::MessageHeader header_of(inbox::Kind kind, const iwarp::WorkRequest& work,
                                               std::uint8_t flags) const;
  Outcome complete(const iwarp::WorkRequest& work, iwarp::Status status);
  Outcome fail(const iwarp::WorkRequest& work, iwarp::Status status, Failure failure);
  Outcome copy_failed(const iwarp::WorkRequest& work, int error);
  [[nodiscard]] std::uint32_t give_covered() { return std::exchange(silent_, 0) + 1; }

  QueuePairParts& parts_;
  LocalConnection& connection_;
  // Small Writes are gathered here, again and again.
  RingQueue<StoredRequest, std::size_t{16} * 1024> pending_;
  RingQueue<UnderWay, std::size_t{16} * 1024> under_way_;  // before pending_
  std::uint64_t stalled_at_ = UINT64_MAX;                  // see stalls()
  std::optional<Failure> failure_;
  std::optional<std::uint8_t> retries_;
  bool awaits_room_ = false;
  bool reply_awaited_ = false;   // by the oldest pending request
  bool stored_ = false;          // the request that executes is the oldest pending one
  bool watches_taking_ = false;  // see watch_taking()
  // For accesses of the peer's device.
  struct Asked {
    std::uint64_t requests = 0;  // since the beginning
    std::uint64_t answers = 0;   // taken
    // In a staged connection: the part that was asked for last, or is to be filled next.
    std::uint64_t part = 0;
    bool next_fails = false;  // the memory of the part behind it cannot be read
    // Reads with places in the staging area: since the beginning, and under way.
    std::uint64_t reads = 0;
    std::uint32_t reads_under_way = 0;
  };
  Asked asked_;
  PeerReceives receives_;
  std::uint64_t deadline_ns_ = UINT64_MAX;  // of the oldest pending request, which lacks a receive
  MappedAccess mapped_;
  AccessCounts counts_;
  GrantView::Known known_;  // the region of the last Read, Write or atomic
  ReceiveWait wait_;
  std::uint64_t posted_ = 0;             // requests
  std::uint32_t silent_ = 0;             // unsignaled requests done since the last completion
  std::uint64_t length_bytes_ = 0;       // of the request that executes
  std::vector<iovec> local_;             // its memory here
  std::vector<iovec> remote_;            // and there
  std::vector<GrantView::Found> found_;  // the regions of remote_
};

}  // namespace weft::device
