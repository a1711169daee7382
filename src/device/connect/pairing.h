// Connects a queue pair to its peer without a connection manager: the step from INIT to RTR gives
// the peer's GID and number, and the ends dial: the lower one (by number and GID) at once, the
// higher one where it has heard nothing for a while, or where the lower one has asked too early.
//
// Exactly one connection results. An end that accepts a request gives up its own. If both requests
// are under way, the one of the lower end wins, and the other is answered as crossed. If only one
// end can reach the other, its request is the only one that arrives.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "device/connect/dialer.h"
#include "device/connect/inbound_handshake.h"
#include "device/engine.h"
#include "wire/hello.h"

namespace weft::device {

class QueuePair;

// One end of a pairing. The order lets both ends agree on which of them is the lower.
struct PairingEnd {
  ibv_gid gid{};
  std::uint32_t number = 0;

  [[nodiscard]] bool operator<(const PairingEnd& other) const;
  [[nodiscard]] bool operator==(const PairingEnd& other) const;
};

// Exists from RTR to the end of the connection, or to RESET, ERR or destruction. A queue pair that
// goes through the states again gets a new one.
//
// Locks: callers may hold the queue pair's lock. With its own lock held, this object calls neither
// the queue pair nor Dialer::start() nor an InboundHandshake.
class Pairing final : public Pollable, public std::enable_shared_from_this<Pairing> {
 public:
  struct Plan {
    PairingEnd local;
    PairingEnd peer;
    sockaddr_storage source{};       // the address behind the local GID
    sockaddr_storage destination{};  // the peer's, with its slot's port
    std::uint32_t receive_psn = 0;
    std::uint32_t control_stag = 0;  // where the peer may write control words
    bool unreliable = false;         // IBV_QPT_UC
    // Hello::extended_sender or extended_receiver, of IBV_QPT_XRC_SEND and IBV_QPT_XRC_RECV.
    std::uint32_t extended = 0;
  };

  // Makes a plan of the attributes of ibv_modify_qp(3). 0, or EINVAL if they allow no connection.
  [[nodiscard]] static int make_plan(Device& device, std::uint32_t number,
                                     const ibv_qp_attr& attributes, Plan& plan);

  Pairing(Device& device, std::weak_ptr<QueuePair> queue_pair, const Plan& plan);
  ~Pairing() override;
  Pairing(const Pairing&) = delete;
  Pairing& operator=(const Pairing&) = delete;

  // Returns at once; the progress thread, or a thread that polls, does the rest. `asked`: the peer
  // has asked for the connection before, in vain.
  void start(bool asked);
  // The queue pair has reached RTS. PSNs are secrets that both programs know: see verify().
  void ready_to_send(std::uint32_t psn);
  // Work has been posted. Without a connection it fails after this time (0: never). The time during
  // which the peer answers that it is not ready does not count.
  void work_waits(std::uint64_t retry_time_ns);
  // The connection is lost. `again`: the peer never had it, so that it is set up once more.
  // Otherwise no other connection will come, and work fails when its retry time is over.
  void lost(bool again);
  void cancel();
  void abandon_after_fork();
  // The number of retries so far.
  [[nodiscard]] std::uint32_t retries() const { return retries_.load(); }
  // There is no connection and none will come, so posted work fails.
  [[nodiscard]] bool over();

  // Answers a request that names this queue pair.
  void on_request(const std::shared_ptr<InboundHandshake>& inbound, const wire::Hello& request);

  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override;

 private:
  enum class Phase : std::uint8_t {
    idle,       // waits for `next_attempt_ns_`
    dialing,    // our request is under way
    accepting,  // our reply to the peer's request is under way
    paired,
    lost,  // by the peer: work waits until its retry time is over
    over,
  };

  // What the PSNs of a hello prove about its sender.
  enum class Proof : std::uint8_t { none, right, wrong };
  [[nodiscard]] Proof verify(const wire::Hello& hello) const;
  [[nodiscard]] wire::HelloAnswer judge(const InboundHandshake& inbound, const wire::Hello& hello);
  [[nodiscard]] std::shared_ptr<Dialer> make_dialer();
  void dial();
  [[nodiscard]] bool to_itself() const;
  void loop();
  void on_dialed(std::uint32_t attempt, Dialer::Outcome outcome);
  void on_turned_down(wire::HelloAnswer answer);
  void on_accepted(StreamSocket stream, const iwarp::Negotiated& negotiated,
                   const iwarp::PeerFeatures& peer);
  void hand_over(StreamSocket stream, const iwarp::Negotiated& negotiated,
                 const iwarp::PeerFeatures& peer, bool initiator);
  [[nodiscard]] wire::Hello hello(std::uint32_t generation) const;
  [[nodiscard]] std::uint64_t first_pause_ns() const;
  [[nodiscard]] bool yields_on(std::uint64_t now_ns);
  [[nodiscard]] bool must_ask_at_last(std::uint64_t now_ns);
  void try_again(std::uint64_t pause_ns);
  void expect_no_more();
  void forgive_own_lateness(std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t end_of_retries_ns() const;
  void look_for_fault();

  Device& device_;
  const std::weak_ptr<QueuePair> queue_pair_;
  const Plan plan_;

  std::mutex mutex_;
  Phase phase_ = Phase::idle;
  std::shared_ptr<Dialer> dialer_;
  std::atomic<std::uint32_t> retries_{0};
  std::uint32_t attempt_ = 0;  // number of the latest one; outcomes of others are ignored
  std::optional<std::uint32_t> peer_generation_;  // of the peer's latest request
  std::optional<std::uint32_t> send_psn_;         // of our queue pair, from RTS on
  bool yields_ = false;                           // the lower end is about to ask
  bool expecting_ = false;                        // PairingRequests knows the peer's address
  std::uint64_t next_attempt_ns_ = 0;
  std::uint64_t hidden_until_ns_ = 0;  // by a rule of faults; UINT64_MAX: for ever
  std::uint64_t pause_ns_ = 0;
  std::uint64_t retry_time_ns_ = 0;     // 0: without end
  std::uint64_t waiting_since_ns_ = 0;  // 0: no work waits
};

// Answers a request at one of this process's slots: finds the queue pair and its pairing.
void answer_request(Device& device, const std::shared_ptr<InboundHandshake>& inbound,
                    const wire::Hello& hello);

// How long unacknowledged work is tried on InfiniBand, from the attributes of a queue pair: 0 for
// ever, otherwise at least `least_ns`.
[[nodiscard]] std::uint64_t retry_time_ns(std::uint8_t timeout, std::uint8_t retry_count,
                                          std::uint64_t least_ns);

}  // namespace weft::device
