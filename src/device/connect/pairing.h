// How a queue pair finds its peer without a connection manager: from INIT to RTR it is told a GID
// and a number, and both ends try to connect.
//
// Exactly one connection results. Who accepts a request gives up his own; where both requests are
// under way, that of the lower end (by GID and number) wins, and the other is told that it crossed.
// Where only one end can reach the other, that end's request is the one that arrives.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "device/connect/dialer.h"
#include "device/connect/greeting.h"
#include "device/engine.h"
#include "wire/hello.h"

namespace weft::device {

class QueuePair;

// One end of a pairing. Ordered, so that two ends agree on which is the lower.
struct PairingEnd {
  ibv_gid gid{};
  std::uint32_t number = 0;

  [[nodiscard]] bool operator<(const PairingEnd& other) const;
  [[nodiscard]] bool operator==(const PairingEnd& other) const;
};

// From RTR to the end of the connection, or to RESET, ERR or destruction. A queue pair that is
// taken through the states again has a new one.
//
// Locks: the queue pair's may be held by who calls; this object never calls the queue pair, a
// dialer's start() or a greeting with its own lock held.
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
  };

  // Why no connection may come of what the program gave: EINVAL, or 0.
  [[nodiscard]] static int make_plan(Device& device, std::uint32_t number,
                                     const ibv_qp_attr& attributes, Plan& plan);

  Pairing(Device& device, std::weak_ptr<QueuePair> queue_pair, const Plan& plan);
  ~Pairing() override;
  Pairing(const Pairing&) = delete;
  Pairing& operator=(const Pairing&) = delete;

  // Returns at once: the progress thread, or who polls, does the rest.
  void start();
  // The queue pair has reached RTS. PSNs are secrets that both programs know: see verify().
  void ready_to_send(std::uint32_t psn);
  // Work has been posted. Without a connection it fails after this long (0: never): the time during
  // which the peer says that it is not ready does not count.
  void work_waits(std::uint64_t patience_ns);
  // The connection is gone. `again`: before the peer had it; otherwise nothing more will come, and
  // work fails when its patience ends.
  void lost(bool again);
  void cancel();
  void abandon_after_fork();
  // How often it was tried again.
  [[nodiscard]] std::uint32_t retries() const { return retries_.load(); }
  // No connection, and none will come: what is posted fails.
  [[nodiscard]] bool over();

  // Somebody at the other side asks for our queue pair.
  void on_request(const std::shared_ptr<Greeting>& greeting, const wire::Hello& request);

  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override;

 private:
  enum class Phase : std::uint8_t {
    idle,       // waits for `next_attempt_ns_`
    dialing,    // our request is under way
    accepting,  // our reply to the peer's request is under way
    paired,
    lost,  // by the peer: work waits in vain
    over,
  };

  // What the PSNs of a hello prove about its sender.
  enum class Proof : std::uint8_t { none, right, wrong };
  [[nodiscard]] Proof verify(const wire::Hello& hello) const;
  [[nodiscard]] wire::HelloAnswer judge(const Greeting& greeting, const wire::Hello& hello);
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
  void try_again(std::uint64_t pause_ns);
  void expect_no_more();
  [[nodiscard]] std::uint64_t end_of_patience_ns() const;

  Device& device_;
  const std::weak_ptr<QueuePair> queue_pair_;
  const Plan plan_;

  std::mutex mutex_;
  Phase phase_ = Phase::idle;
  std::shared_ptr<Dialer> dialer_;
  std::atomic<std::uint32_t> retries_{0};
  std::uint32_t attempt_ = 0;                     // of ours: an earlier one's outcome is ignored
  std::optional<std::uint32_t> peer_generation_;  // of the peer's latest request
  std::optional<std::uint32_t> send_psn_;         // of our queue pair, from RTS on
  bool expecting_ = false;                        // PairingRequests knows the peer's address
  std::uint64_t next_attempt_ns_ = 0;
  std::uint64_t pause_ns_ = 0;
  std::uint64_t patience_ns_ = 0;       // 0: without end
  std::uint64_t waiting_since_ns_ = 0;  // 0: no work waits
};

// Answers a request at one of this process's slots: finds the queue pair and its pairing.
void answer_request(Device& device, const std::shared_ptr<Greeting>& greeting,
                    const wire::Hello& hello);

// How long unacknowledged work is tried on InfiniBand, from the attributes of a queue pair: 0 for
// ever, otherwise at least `least_ns`.
[[nodiscard]] std::uint64_t patience_ns(std::uint8_t timeout, std::uint8_t retry_count,
                                        std::uint64_t least_ns);

}  // namespace weft::device
