#include "device/queue_pair/silent_initiator.h"

#include <sys/socket.h>

#include "base/log.h"
#include "device/addresses.h"
#include "device/limits.h"
#include "device/system.h"

namespace weft::device {

// The wait is shorter where the user allows this side to speak, since that ends it; a report to the
// user should not come for an initiator that is only slow.
void SilentInitiator::watch(std::uint64_t now_ns, bool speaks) {
  speaks_ = speaks;
  next_ns_ = now_ns + (speaks ? limits::responder_first_ns : limits::silent_initiator_ns);
}

SilentInitiator::Step SilentInitiator::on_time(std::uint64_t now_ns, bool work_waits) {
  if (now_ns < next_ns_) return Step::none;
  if (speaks_) {
    stop();
    return Step::speak;
  }
  // Nothing is lost yet: most responders only answer. Look again later.
  if (!work_waits) {
    next_ns_ = now_ns + limits::silent_initiator_ns;
    return Step::none;
  }
  stop();
  return Step::report;
}

// The rule is RFC 5044 §7.1, and only the peer or the user can lift it, so the message names both
// ways.
void SilentInitiator::report(int socket) {
  sockaddr_storage peer{};
  const bool known = sys::peer_address(socket, &peer) >= 0;
  log_format(LogLevel::warning, "weft0",
             "%s has connected and sends nothing, and its request asked for no peer-to-peer "
             "mode, so this side may not send first (RFC 5044 section 7.1): turn that mode on at "
             "the peer (Linux's siw is built with it: peer_to_peer in siw_main.c), or set "
             "WEFT_RESPONDER_FIRST=1 here",
             known ? to_string(peer).c_str() : "the peer");
}

}  // namespace weft::device
