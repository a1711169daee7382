// What a connection over TCP sends later, together with other work: requests of several posts, and
// answers to proofs.
#include "device/queue_pair/stream_carrier.h"

namespace weft::device {

void StreamCarrier::posted(QueuePairLock& lock) {
  if (gathering_.may_wait() && may_gather(lock) && deferral_.begin()) return;
  // Bulk leaves now, but in whole segments.
  if (gathering_.end_may_wait() && may_gather(lock)) {
    send_posted(true);
    const std::uint64_t look_ns = segments_.whole ? gathering_.keep_end() : 0;
    if (look_ns != 0) driver_.engine.call_at(look_ns, driver_.queue_pair.lock());
  } else {
    StreamCarrier::advance(lock);
  }
  gathering_.left();
}

// Where requests could not leave now anyway, advance() finds that out.
bool StreamCarrier::may_gather(const QueuePairLock& lock) {
  return takes_requests(lock) && parts_.waiting.empty() && !parts_.completions.awaited();
}

// The proofs that a peer waits for may leave with what the program is likely to post now that it
// sees what came in. If it polls first, or sleeps in Engine::wait(), they leave with that call; if
// it does neither, the progress thread sends them within two ticks; if it exits, the peer's TCP
// knows that everything has arrived. A program that goes on is done with them before its first tick
// ends, and the thread would only come between.
bool StreamCarrier::defer_proofs(bool waiting, const QueuePairLock& lock) {
  if (deferral_.under_way() && !driver_.engine.application_waits()) return false;
  if (connection_.ended() || !parts_.waiting.empty()) return false;
  if (!connection_.only_proofs_due() && !may_defer_probe(lock)) return false;
  return deferral_.begin(waiting, 2);
}

// So may the read that asks the peer for proofs, where the program finds completions: it then
// proves what is posted next, and costs no system call. A program that is going to sleep may wait
// for exactly what the read proves.
bool StreamCarrier::may_defer_probe(const QueuePairLock& lock) {
  return !parts_.completions.empty() && connection_.only_probe_due() && may_gather(lock);
}

// Requests that were gathered leave with the program's own calls, if it polls or waits.
void StreamCarrier::note_late_gathering() {
  if (gathering_.waits() && !deferral_.is_for_program()) gathering_.missed();
}

}  // namespace weft::device
