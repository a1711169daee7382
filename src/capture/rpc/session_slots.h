// Follows the slots of NFS sessions (RFC 8881 §2.10.6). A slot has one request at a time, so a
// client that uses all slots waits for a reply. A session may have several connections, so the
// slots are counted by session and not by connection. A client that has one request at a time waits
// for its reply anyway, so a wait counts only if others were under way when it ended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "capture/findings/allowance.h"
#include "weft/capture/assembled.hpp"
#include "weft/capture/rpc.hpp"

namespace weft::capture {

using SessionId = std::array<std::byte, 16>;

// A slot that a call uses.
struct SessionSlot {
  SessionId session{};
  std::uint32_t slot = 0;
};

class SessionSlots {
 public:
  // The session of which no call came for longest is forgotten above the first limit. A call with a
  // slot above the second one is not followed.
  static constexpr std::size_t most_sessions = 4'096;
  static constexpr std::uint32_t most_slots = 4'096;

  // A call was sent. If it begins with SEQUENCE, `slot` is set to its slot. Returns how it waited
  // for that. `lacking`: packets of its connection are missing, so slots may be free that seem
  // used.
  LimitWait on_call(const Rpc& rpc, bool lacking, std::optional<SessionSlot>& slot);
  // The reply to the call was sent. `reply` is its inline part, which names the number of slots.
  void on_reply(const Rpc& rpc, const SessionSlot& slot, const Assembled& reply,
                const Stamp& stamp);
  // The call has no reply in the capture, so it is unknown when its slot was free.
  void give_up(const SessionSlot& slot);

 private:
  struct Session {
    std::uint32_t slots = 0;  // that the server prefers; 0: unknown
    bool lost = false;        // which slots are used is unknown
    std::set<std::uint32_t> used{};
    Allowance free{};
    std::uint64_t last_call = 0;  // number of its last call
  };

  Session& session(const SessionId& id);
  static void note(Session& session, const Stamp& stamp);

  std::map<SessionId, Session> sessions_;
  std::uint64_t calls_ = 0;
};

}  // namespace weft::capture
