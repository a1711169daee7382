// Event channels, ids and their options.
#include <arpa/inet.h>

#include <array>
#include <cstdlib>

#include "cm/answer.h"
#include "cm/cm.h"
#include "cm/identifier.h"
#include "cm/newer.h"
#include "cm/pair_wait.h"
#include "cm/ports.h"
#include "cm/registry.h"
#include "device/addresses.h"

namespace weft::cm {
namespace {

// Without a progress thread the waiting thread must drive the device. With one, that thread must
// not be asleep.
void prepare_to_wait(device::Engine& engine, int fd) {
  if (engine.mode() != device::ProgressMode::manual) return engine.expect_sleep();
  if (engine.simulated()) return;  // sys::await_token() carries out what happens
  // The program waits by itself and expects EAGAIN where there is no event.
  if (device::sys::nonblocking(fd)) return;
  // How long arriving data may wait while this thread looks only at its own descriptor.
  constexpr int tick_ms = 1;
  while (device::sys::poll_readable(fd, 0) == 0) {
    engine.poll();
    if (device::sys::poll_readable(fd, tick_ms) < 0) return;
  }
}

bool ends_connection(int event) {
  return event == RDMA_CM_EVENT_DISCONNECTED || event == RDMA_CM_EVENT_REJECTED ||
         event == RDMA_CM_EVENT_UNREACHABLE || event == RDMA_CM_EVENT_CONNECT_ERROR;
}

// Only IPv4 and IPv6 addresses have ports.
std::uint16_t port_be(const sockaddr_storage& address) {
  const bool known = address.ss_family == AF_INET || address.ss_family == AF_INET6;
  return known ? htons(device::port_of(address)) : 0;
}

}  // namespace

Manager::Manager(std::function<device::Context*()> context, const Options& options)
    : registry_(std::make_shared<Registry>(std::move(context), options)) {}

Manager::~Manager() {
  registry_->close();
}

Counters Manager::counters() const {
  const LiveCounters& live = registry_->counters();
  return {.connections_active = live.connections_active,
          .connections_passive = live.connections_passive,
          .revision_1_fallbacks = live.revision_1_fallbacks,
          .unacknowledged = live.unacknowledged,
          .addresses_in_use = live.addresses_in_use,
          .requests_dropped = live.requests_dropped};
}

bool Manager::has_objects() const {
  return registry_->has_objects();
}

void Manager::abandon_after_fork() {
  registry_->abandon_after_fork();
}

rdma_event_channel* Manager::create_event_channel() {
  const auto channel = Channel::create(registry_);
  if (!channel) return nullptr;
  registry_->add(channel);
  return channel->handle();
}

// A channel from before fork(2) belongs to the registry of the parent, whose lock may be held.
const std::shared_ptr<Registry>& Manager::registry_of(const Channel& channel) const {
  return channel.abandoned() ? registry_ : channel.registry();
}

void Manager::destroy_event_channel(rdma_event_channel* channel) {
  Channel* const destroyed = Channel::of(channel);
  destroyed->await_reader();
  const std::shared_ptr<Registry> registry = registry_of(*destroyed);
  registry->remove(destroyed);
}

// A thread may be cancelled in await_cm_event(), so nothing in this frame has a destructor.
int Manager::get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (!channel || !event) return answer(EINVAL);
  Channel* const read = Channel::begin_reading(channel);
  if (!read) return answer(EBADF);
  const int failed = await_cm_event(*read, event);
  Channel::end_reading(channel);
  return failed == 0 ? 0 : answer(failed);
}

// A token may belong to an event that was withdrawn, so it waits again. 0 or an errno value. The
// events of a channel from before fork(2) go to the parent.
int Manager::await_cm_event(Channel& channel, rdma_cm_event** event) {
  if (channel.abandoned()) return ENODEV;
  const int fd = channel.handle()->fd;
  while (true) {
    device::Context* const context = registry_of(channel)->opened();
    int failed = 0;
    if (context && PairWait::begin(channel, *context)) {
      failed = PairWait::await();
    } else {
      if (context) prepare_to_wait(context->engine(), fd);
      failed = device::sys::await_token(fd);
    }
    if (failed != 0) return failed;
    if (take_cm_event(channel, event)) return 0;
  }
}

// Takes the event for a token of the descriptor. False where the event was withdrawn meanwhile.
// From here on the program owns the id of a connection request, so it is registered like others.
bool Manager::take_cm_event(Channel& read, rdma_cm_event** event) {
  const auto channel = read.shared_from_this();
  std::unique_ptr<Event> taken = channel->take();
  if (!taken) return false;
  if (taken->request) {
    // A synchronous listener's connections are synchronous as well, each with its own channel.
    const bool synchronous = taken->owner->synchronous();
    const auto& registry = registry_of(*channel);
    const auto own = synchronous ? Channel::create(registry) : channel;
    registry->add(taken->request);
    // Where no descriptor is left for a channel of its own, the id uses that of the listener.
    taken->request->deliver(own ? own : channel, synchronous);
    taken->request.reset();
  }
  if (ends_connection(newer::type_of(taken->event))) taken->owner->note_end_reported();
  *event = &taken.release()->event;
  return true;
}

int Manager::ack_cm_event(rdma_cm_event* event) {
  if (!event) return answer(EINVAL);
  const std::unique_ptr<Event> last(Event::of(event));
  last->owner->acknowledge();
  return 0;
}

int Manager::create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                       rdma_port_space ps) {
  if (ps == RDMA_PS_IPOIB) return answer(EOPNOTSUPP);
  const bool datagram = ps == RDMA_PS_UDP;
  if (ps != RDMA_PS_TCP && ps != RDMA_PS_IB && !datagram) return answer(EINVAL);
  // Registry::context() sets ENODEV only where the device has left errno at 0.
  errno = 0;
  const auto& registry = channel ? registry_of(*Channel::of(channel)) : registry_;
  device::Context* const opened = registry->context();
  if (!opened) return -1;
  // A device that looks like an iWARP adapter has no datagram queue pairs.
  if (datagram && !opened->device().is_roce()) return answer(EOPNOTSUPP);
  const ibv_qp_type type = datagram ? IBV_QPT_UD : IBV_QPT_RC;
  const auto where = channel ? Channel::of(channel)->shared_from_this() : Channel::create(registry);
  if (!where) return -1;
  // The channel of a synchronous id is not registered: the program does not destroy it, and it ends
  // with the id.
  auto state = std::make_unique<IdState>(registry, where, channel == nullptr, ps, type, context);
  auto space = make_port_space(*state);
  const auto made = std::make_shared<Identifier>(std::move(state), std::move(space));
  registry->add(made);
  *id = made->handle();
  return 0;
}

// rdma_destroy_id(3) blocks until every fetched event is acknowledged. In synchronous mode the one
// in id->event is the library's to acknowledge.
int Manager::destroy_id(rdma_cm_id* id) {
  if (!id) return answer(EINVAL);
  Identifier& identifier = *Identifier::of(id);
  if (identifier.abandoned()) return 0;  // its locks may be in any state, so it is leaked
  // First, because afterwards no other thread can fetch an event of this id, so that the wait ends.
  identifier.shut();
  if (id->event) ack_cm_event(id->event);
  id->event = nullptr;
  identifier.wait_for_acknowledgements();
  const std::shared_ptr<Registry> registry = identifier.registry();
  registry->remove(&identifier);
  return 0;
}

// rdma_migrate_id(3): blocks until the events that were fetched before are acknowledged.
int Manager::migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  Identifier& identifier = *Identifier::of(id);
  const bool was_synchronous = identifier.synchronous();
  // As in librdmacm: the id has a channel of its own already.
  if (was_synchronous && !channel) return answer(EINVAL);
  const auto& registry = identifier.registry();
  // Of another device.
  if (channel && registry_of(*Channel::of(channel)) != registry) return answer(EINVAL);
  const auto where = channel ? Channel::of(channel)->shared_from_this() : Channel::create(registry);
  if (!where) return -1;
  identifier.migrate(where, channel == nullptr);
  if (was_synchronous && id->event) {
    ack_cm_event(id->event);
    id->event = nullptr;
  }
  identifier.wait_for_acknowledgements();
  return 0;
}

int Manager::set_option(rdma_cm_id* id, int level, int name, void* value, std::size_t bytes) {
  if (level == RDMA_OPTION_ID) return answer(Identifier::of(id)->set_option(name, value, bytes));
  // There is no InfiniBand subnet, so no path can be set.
  const bool path = level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH;
  return answer(path ? EINVAL : ENOSYS);
}

std::uint16_t Manager::get_src_port(rdma_cm_id* id) {
  return port_be(id->route.addr.src_storage);
}

std::uint16_t Manager::get_dst_port(rdma_cm_id* id) {
  return port_be(id->route.addr.dst_storage);
}

ibv_context** Manager::get_devices(int* count) {
  if (count) *count = 0;
  device::Context* const context = registry_->context();
  if (!context) return nullptr;
  // A null-terminated list of pointers. NOLINTNEXTLINE(bugprone-sizeof-expression)
  auto** list = static_cast<ibv_context**>(std::calloc(2, sizeof(ibv_context*)));
  if (!list) return nullptr;
  list[0] = context->verbs();
  if (count) *count = 1;
  return list;
}

// The context stays open, since the ids use it.
void Manager::free_devices(ibv_context** list) {
  std::free(list);
}

// IBV_EVENT_COMM_EST needs no notification here: the first FPDU of a stream has the same effect.
int Manager::notify(rdma_cm_id* /*id*/, ibv_event_type /*event*/) {
  return 0;
}

int Manager::set_local_ece(rdma_cm_id* /*id*/, ibv_ece* /*ece*/) {
  return answer(EOPNOTSUPP);
}

int Manager::get_remote_ece(rdma_cm_id* /*id*/, ibv_ece* /*ece*/) {
  return answer(EOPNOTSUPP);
}

}  // namespace weft::cm
