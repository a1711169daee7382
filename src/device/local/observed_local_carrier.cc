#include "device/local/observed_local_carrier.h"

namespace weft::device {

// A request that is executed at once is so before it is in the trace.
int ObservedLocalCarrier::post(const SendRequest& request, QueuePairLock& lock) {
  const int failed = LocalCarrier::post(request, lock);
  follow(lock);
  return failed;
}

void ObservedLocalCarrier::advance(QueuePairLock& lock) {
  LocalCarrier::advance(lock);
  follow(lock);
}

void ObservedLocalCarrier::posted(QueuePairLock& lock) {
  LocalCarrier::posted(lock);
  follow(lock);
}

void ObservedLocalCarrier::drive(Occasion occasion, QueuePairLock& lock) {
  LocalCarrier::drive(occasion, lock);
  follow(lock);
}

void ObservedLocalCarrier::disconnect(QueuePairLock& lock) {
  LocalCarrier::disconnect(lock);
  follow(lock);
}

void ObservedLocalCarrier::flush(QueuePairLock& lock) {
  LocalCarrier::flush(lock);
  follow(lock);
}

// While the connection is on TCP, its stream follows it. Its end releases the requests that were
// not executed.
void ObservedLocalCarrier::follow(const QueuePairLock& lock) {
  const LocalRequester* const requests = requester();
  if (!requests) return;
  using Wait = QueuePairTrace::Wait;
  RequestWatch& watch = parts().observation->watch;
  const bool open = !ended(lock);
  if (open) watch.executed(requests->executed());
  watch.waits(Wait::peer_receive, open && requests->awaits_receive());
  watch.waits(Wait::inbox, open && requests->awaits_room());
}

}  // namespace weft::device
