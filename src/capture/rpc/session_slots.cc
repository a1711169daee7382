#include "capture/rpc/session_slots.h"

#include <algorithm>

#include "capture/rpc/rpc_exchange.h"

namespace weft::capture {

SessionSlots::Session& SessionSlots::session(const SessionId& id) {
  if (sessions_.size() >= most_sessions && !sessions_.contains(id)) {
    const auto call_of = [](const auto& one) { return one.second.last_call; };
    sessions_.erase(std::ranges::min_element(sessions_, {}, call_of));
  }
  Session& session = sessions_[id];
  session.last_call = ++calls_;
  return session;
}

void SessionSlots::note(Session& session, const Stamp& stamp) {
  if (session.slots == 0 || session.lost) return;
  session.free.set(stamp,
                   std::int64_t{session.slots} - static_cast<std::int64_t>(session.used.size()));
}

// A call in a slot that is used repeats the request there, or the reply was not captured.
LimitWait SessionSlots::on_call(const Rpc& rpc, bool lacking, std::optional<SessionSlot>& slot) {
  const auto named = session_of_call(rpc);
  if (!named || named->slot >= most_slots || named->id.size() != SessionId{}.size()) return {};
  slot.emplace().slot = named->slot;
  std::ranges::copy(named->id, slot->session.begin());
  Session& its = session(slot->session);
  its.lost = its.lost || lacking;
  if (its.lost) its.used.clear();
  if (its.lost) return {};
  const Stamp& stamp = rpc.call->first;
  const bool alone = its.used.empty();
  const LimitWait wait = its.free.wait_before(stamp, 1);
  its.used.insert(named->slot);
  note(its, stamp);
  return alone ? LimitWait{} : wait;
}

void SessionSlots::on_reply(const Rpc& rpc, const SessionSlot& slot, const Assembled& reply,
                            const Stamp& stamp) {
  const auto known = sessions_.find(slot.session);
  if (known == sessions_.end() || known->second.lost) return;
  Session& its = known->second;
  its.used.erase(slot.slot);
  if (const auto slots = slots_of_reply(rpc, reply)) its.slots = *slots;
  note(its, stamp);
}

void SessionSlots::give_up(const SessionSlot& slot) {
  const auto known = sessions_.find(slot.session);
  if (known != sessions_.end()) known->second.lost = true;
}

}  // namespace weft::capture
