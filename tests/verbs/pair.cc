#include "verbs/pair.h"
#include "support/device.h"

#include <array>
#include <stdexcept>

namespace weft::verbs::testing {
namespace {

ConnectionParameters parameters(std::uint8_t depth) {
  ConnectionParameters wanted;
  wanted.responder_resources = wanted.initiator_depth = depth;
  return wanted;
}

}  // namespace

End::End(Id&& identifier, const EndSettings& settings)
    : id(std::move(identifier)),
      context(id.context()),
      domain(context.create_domain()),
      channel(context.create_channel()),
      queue(context.create_completion_queue(256, {.channel = &channel})),
      region(domain.allocate<std::uint8_t>(settings.bytes, settings.access)),
      queue_pair(id.create_queue_pair(domain, queue, queue, settings.capacity)) {}

Completion End::await() {
  std::array<Completion, 1> one;
  const auto got = queue.wait(one, patience);
  if (got.empty()) throw std::runtime_error("no completion");
  return got.front();
}

ConnectionEvent expect(const EventChannel& events, rdma_cm_event_type type) {
  auto event = events.next(patience);
  if (!event) throw std::runtime_error("no connection event");
  EXPECT_EQ(event->type(), type) << event->name() << ", status " << event->status();
  return std::move(*event);
}

Pair::Pair(const EndSettings& settings) {
  const Id listener(events);
  listener.bind({test::host(), 0});
  listener.listen();

  Id caller(events);
  caller.resolve_address({test::host(), listener.local_port()}, patience);
  (void)expect(events, RDMA_CM_EVENT_ADDR_RESOLVED);
  caller.resolve_route(patience);
  (void)expect(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
  a.emplace(std::move(caller), settings);
  a->id.connect(parameters(settings.depth));

  auto request = expect(events, RDMA_CM_EVENT_CONNECT_REQUEST);
  b.emplace(request.take_request(), settings);
  b->id.accept(parameters(settings.depth));
  (void)expect(events, RDMA_CM_EVENT_ESTABLISHED);
  (void)expect(events, RDMA_CM_EVENT_ESTABLISHED);
}

}  // namespace weft::verbs::testing
