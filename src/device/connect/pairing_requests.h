// The requests of peers for queue pairs that connect by GID and number, and the rules for who may
// ask. Queue pair numbers can be enumerated, so what a stranger learns here is bounded: a peer from
// an address that no queue pair expects, and a process of another user of this host, gets the same
// answer for every number, and late.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "device/connect/dial_turns.h"
#include "device/connect/inbound_handshake.h"
#include "device/connect/peer_owner.h"
#include "device/engine.h"
#include "wire/hello.h"

namespace weft::device {

class PairingRequests;

// A request of a stranger, or one that came before its queue pair here could be connected, until
// its answer is due.
class ParkedRequest final : public Pollable {
 public:
  ParkedRequest(PairingRequests& owner, std::shared_ptr<InboundHandshake> asker,
                const wire::Hello& request, std::uint64_t answer_at_ns, bool is_known)
      : inbound(std::move(asker)),
        hello(request),
        due_ns(answer_at_ns),
        known(is_known),
        owner_(owner) {}

  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override;

  const std::shared_ptr<InboundHandshake> inbound;
  const wire::Hello hello;
  const std::uint64_t due_ns;
  const bool known;  // no stranger

 private:
  PairingRequests& owner_;
};

// One for a device. Thread-safe.
class PairingRequests {
 public:
  explicit PairingRequests(Device& device);

  // Handles a request that has arrived at one of this process's slots. Called without any lock.
  void handle(const std::shared_ptr<InboundHandshake>& inbound);

  // Queue pair `number` now has `gid` in its address vector, or not any more. A request that was
  // parked because it came before this is answered at once. May be called with the locks of a
  // queue pair and of its pairing.
  void expect(std::uint32_t number, const ibv_gid& gid);
  void expect_no_more(const ibv_gid& gid);
  // A process at this address, which a queue pair expects, has asked for a connection since then.
  [[nodiscard]] bool heard_since(const ibv_gid& gid, std::uint64_t time_ns);
  // The number of queue pairs that have no address vector yet and may get one, because they are in
  // RESET or INIT, changes by `change`.
  void add_expectant(int change) { expectant_ += change; }

  // Those of this process to its peers.
  [[nodiscard]] DialTurns& dial_turns() { return dial_turns_; }

  // True if the other end of the connection is on this host and belongs to another user, who
  // has no business with this process's queue pairs unless the settings allow it.
  [[nodiscard]] bool is_other_users(const TcpEnds& ends);
  [[nodiscard]] bool is_other_users(const InboundHandshake& inbound);

  // For ParkedRequest.
  void answer(ParkedRequest& parked);
  void abandon_after_fork();

 private:
  using Gid = std::array<std::uint8_t, 16>;
  struct Expected {
    std::size_t pairings = 0;
    std::uint64_t heard_ns = 0;  // the last request
  };

  [[nodiscard]] static Gid key_of(const ibv_gid& gid);
  [[nodiscard]] bool expects(const InboundHandshake& inbound);
  [[nodiscard]] bool is_early(const wire::Hello& hello) const;
  void park(const std::shared_ptr<InboundHandshake>& inbound, const wire::Hello& hello, bool known);
  void reject_stranger(ParkedRequest& parked) const;

  Device& device_;
  DialTurns dial_turns_;
  PeerOwners owners_;
  std::atomic<int> expectant_{0};
  std::mutex mutex_;
  std::map<Gid, Expected> expected_;
  std::list<std::shared_ptr<ParkedRequest>> parked_;  // oldest first
};

}  // namespace weft::device
