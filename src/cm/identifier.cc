// The life of an id: events, migration, the end. See identifier_address.cc for addresses.
#include "cm/identifier.h"

#include <mutex>

#include "cm/datagram_space.h"
#include "cm/stream_space.h"

namespace weft::cm {

std::unique_ptr<PortSpace> make_port_space(IdState& state) {
  if (state.is_datagram()) return std::make_unique<DatagramSpace>(state);
  return std::make_unique<StreamSpace>(state);
}

Identifier::Identifier(std::unique_ptr<IdState> state, std::unique_ptr<PortSpace> space)
    : state_(std::move(state)), space_(std::move(space)), groups_(*state_) {
  state_->handle.owner = this;
}

bool Identifier::synchronous() {
  const std::lock_guard lock(state_->mutex);
  return state_->synchronous;
}

// rdma_migrate_id(3): events that are not fetched yet move to the new channel, in order.
void Identifier::migrate(const std::shared_ptr<Channel>& channel, bool synchronous) {
  const std::lock_guard lock(state_->mutex);
  // New events are pushed with this lock held, so none can come to the old channel any more.
  for (auto& event : state_->channel->withdraw(this)) channel->push(std::move(event));
  state_->channel = channel;
  state_->synchronous = synchronous;
  state_->handle.id.channel = channel->handle();
}

void Identifier::deliver(const std::shared_ptr<Channel>& channel, bool synchronous) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->channel = channel;
    state_->synchronous = synchronous;
    state_->handle.id.channel = channel->handle();
  }
  // Without the lock, as PortSpace demands. The request leaves its place in the backlog here.
  space_->request_fetched();
}

// The stage is `destroyed` first, so that callbacks that come meanwhile do nothing. Requests that
// the program has not fetched are destroyed with the listener.
void Identifier::shut() {
  std::shared_ptr<Channel> channel;
  Stage last = Stage::destroyed;
  {
    const std::lock_guard lock(state_->mutex);
    last = std::exchange(state_->stage, Stage::destroyed);
    channel = state_->channel;
  }
  space_->shut(last);
  if (!channel) return;
  // Callbacks push nothing in this stage, so that these are the last events.
  for (const auto& event : channel->withdraw(this)) {
    if (event->request) event->request->shut();
  }
}

// In the child after fork(): the lock may be held by a thread that does not exist here.
void Identifier::abandon_after_fork() {
  abandoned_ = true;
  state_->stage = Stage::destroyed;
  space_->abandon_after_fork();
}

}  // namespace weft::cm
