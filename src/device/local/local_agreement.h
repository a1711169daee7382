// How the two ends of a connection within a host agree to leave TCP: over their LocalChannel each
// sends the other its inbox and its grant table, looks whether it can reach the other's memory, and
// only then confirms it. Until both are sure, nothing but the ready-to-receive message has been
// sent over TCP, and requests wait; where anything is missing, both stay on TCP. Where one of them
// cannot reach the other's memory, the connection is staged: see staging.h.
//
//   passive   offer ->            its memory
//   active            <- offer    its memory; whether it can reach the passive side's
//   passive   ready ->            whether the connection is staged; it has left TCP
//
// An end that cannot, or will not, closes the channel.
//
// An offer may also carry files that the program shares with that of the other end. The active side
// sends its own only if the passive side's offer has some.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "device/local/grant_table.h"
#include "device/local/inbox.h"
#include "device/local/local_channel.h"
#include "device/local/peer_process.h"
#include "device/local/shared_memory.h"
#include "device/queue_pair/shared_files.h"

namespace weft::device {

// What one end of a connection within a host has of the other.
struct LocalPeer {
  std::shared_ptr<const PeerProcess> process;
  SharedMemory inbox;
  std::uint32_t receives = 0;  // places for published receives in its inbox, a power of two
  SharedFiles shared;          // by its program; not valid if it shares none
  bool staged = false;         // the connection
};

class LocalAgreement {
 public:
  // `own`: the inbox of this end, ready for use, with `receives` places for receives. `grants`: of
  // this end's context. `processes`: of its device. `shared`: the files that the program shares.
  LocalAgreement(LocalChannel& channel, bool active, const SharedMemory& own,
                 std::uint32_t receives, const GrantTable& grants, PeerProcesses& processes,
                 const SharedFiles& shared);

  enum class State : std::uint8_t { pending, agreed, refused };
  // Sends the first message, where it is this end's turn.
  State begin();
  // Reads what has come over the channel.
  State advance();
  // Whether the peer may never answer. A passive side has heard of its peer by the channel, so that
  // it answers or closes, however late; and once an active side has answered, its peer may rely on
  // that.
  [[nodiscard]] bool may_give_up() const { return active_ && !offer_taken_; }
  // Once agreed.
  [[nodiscard]] LocalPeer take_peer() { return std::move(peer_); }
  // Once refused: why, as the end of "it stays on TCP, because ...".
  [[nodiscard]] const char* refusal() const { return refusal_; }
  // The same: by this end, because of what the peer has sent.
  [[nodiscard]] bool refuses_peer() const { return refuses_peer_; }

 private:
  struct Offer;
  State refuse();
  [[nodiscard]] bool send_offer();
  [[nodiscard]] bool take_offer(LocalChannel::Message message);
  [[nodiscard]] bool find_process(ProcessMark::Name mark, sys::Descriptor grants,
                                  sys::Descriptor counts);

  LocalChannel& channel_;
  const bool active_;
  const SharedMemory& own_;
  const std::uint32_t receives_;
  const GrantTable& grants_;
  PeerProcesses& processes_;
  const SharedFiles& shared_;
  bool offer_taken_ = false;
  bool refuses_peer_ = false;
  const char* refusal_ = "the other end refuses";
  LocalPeer peer_;
};

}  // namespace weft::device
