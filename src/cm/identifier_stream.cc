// What a connected id hears from its stream, and rdma_disconnect(3).
#include <cerrno>

#include "cm/identifier.h"

namespace weft::cm {

void Identifier::on_stream_ready() {
  const std::lock_guard lock(mutex_);
  if (attaching_) {
    ready_early_ = true;
    return;
  }
  if (stage_ != Stage::accepting) return;
  stage_ = Stage::connected;
  ++registry_->counters().connections_passive;
  push_connected(RDMA_CM_EVENT_ESTABLISHED, {});
}

void Identifier::on_stream_ended(iwarp::EndReason /*reason*/) {
  const std::lock_guard lock(mutex_);
  if (attaching_) {
    ended_early_ = true;
    return;
  }
  // Nobody was told of a connection, so nobody is told that it ended.
  if (stage_ == Stage::accepting) push(RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
  if (stage_ == Stage::connected) push(RDMA_CM_EVENT_DISCONNECTED);
  if (stage_ == Stage::accepting || stage_ == Stage::connected) stage_ = Stage::ended;
}

// rdma_disconnect(3) asks both sides to call it, so a connection that has ended already is no
// error.
int Identifier::disconnect() {
  if (is_datagram()) return end_datagrams();
  std::shared_ptr<device::QueuePair> queue_pair;
  {
    const std::lock_guard lock(mutex_);
    if (!handle_.id.verbs) return EINVAL;
    if (stage_ == Stage::ended) return 0;
    if (stage_ == Stage::responded) {
      waiting_.close();
      stage_ = Stage::ended;
      push(RDMA_CM_EVENT_DISCONNECTED);
      return 0;
    }
    if (stage_ != Stage::connected && stage_ != Stage::accepting) return EINVAL;
    if (greeting_) return EINVAL;
    // Whoever hangs up himself is told so, even where the peer never said a word.
    stage_ = Stage::connected;
    queue_pair = queue_pair_.lock();
  }
  if (queue_pair) queue_pair->disconnect();
  return 0;
}

}  // namespace weft::cm
