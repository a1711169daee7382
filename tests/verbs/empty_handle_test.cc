// Handles that were moved from, or that a call has emptied: each call throws std::logic_error.
#include "support/empty_handle.h"
#include "support/device.h"
#include "support/needs.h"
#include "verbs/pair.h"

namespace weft::verbs::testing {
namespace {

using test::expect_empty;

// Empties `handle`; the object stays alive in the result.
template <typename Handle>
Handle taken_from(Handle& handle) {
  return std::move(handle);
}

TEST(EmptyHandle, DevicesAndContexts) {
  auto found = devices();
  ASSERT_FALSE(found.empty());
  Device& device = found.front();
  const Device kept_device = std::move(device);
  expect_empty(
      "weft::verbs::Device", [&] { (void)device.name(); }, [&] { (void)device.guid(); },
      [&] { (void)device.index(); }, [&] { (void)device.open(); }, [&] { (void)device.raw(); },
      [&] { (void)device.backend(); }, [&] { (void)device.transport(); },
      [&] { (void)device.node_type(); });

  Context context = test::open_device();
  CompletionChannel channel = context.create_channel();
  const auto kept = taken_from(context);
  expect_empty(
      "weft::verbs::Context", [&] { (void)context.query(); }, [&] { (void)context.query_port(); },
      [&] { (void)context.gids(); }, [&] { (void)context.device_name(); },
      [&] { (void)context.backend(); }, [&] { (void)context.create_domain(); },
      [&] { (void)context.create_channel(); }, [&] { (void)context.create_completion_queue(1); },
      [&] { (void)context.create_extended_completion_queue(1); },
      [&] { (void)context.best_gid("127.0.0.1"); }, [&] { (void)context.event_fd(); },
      [&] { (void)context.next_event(Deadline::now()); }, [&] { (void)context.query_clock(); },
      [&] { (void)context.completion_vectors(); }, [&] { (void)context.raw(); });

  const auto kept_channel = taken_from(channel);
  expect_empty(
      "weft::verbs::CompletionChannel", [&] { (void)channel.fd(); },
      [&] { (void)channel.wait(Deadline::now()); }, [&] { (void)channel.raw(); },
      [&] { (void)kept.create_completion_queue(1, {.channel = &channel}); });
  context = test::open_device();  // an empty handle can be assigned to
  EXPECT_FALSE(context.device_name().empty());
}

TEST(EmptyHandle, DomainsAndMemory) {
  const Context context = test::open_device();
  ProtectionDomain domain = context.create_domain();
  CompletionQueue queue = context.create_completion_queue(4);
  TypedRegion<int> region = domain.allocate<int>(4, Access::all | Access::bindable);
  SharedReceiveQueue shared = domain.create_shared_receive_queue({});
  const auto kept_region = taken_from(region);
  expect_empty(
      "TypedRegion", [&] { (void)region.bytes(); }, [&] { (void)region.elements(); },
      [&] { (void)region[0]; }, [&] { (void)region.size(); }, [&] { (void)region.slice(); },
      [&] { (void)region.slice(0, 1); }, [&] { (void)region.slice(0, 0); },
      [&] { (void)region.lkey(); }, [&] { (void)region.rkey(); }, [&] { (void)region.remote(); },
      [&] { (void)region.counters(); }, [&] { (void)region.raw(); });

  const auto kept_shared = taken_from(shared);
  const LocalSlice slice = kept_region.slice();
  expect_empty(
      "weft::verbs::SharedReceiveQueue", [&] { (void)shared.post_receive(slice, 1); },
      [&] { shared.set_limit(1); }, [&] { shared.resize(2); }, [&] { (void)shared.query(); },
      [&] { (void)shared.raw(); },
      [&] { (void)domain.queue_pair(queue, queue).shared_receive_queue(shared); });

  if (test::own_device()) {
    MemoryWindow window = domain.allocate_window();
    const auto kept_window = taken_from(window);
    expect_empty(
        "weft::verbs::MemoryWindow", [&] { (void)window.type(); }, [&] { (void)window.remote(); },
        [&] { (void)window.raw(); });
  }

  QueuePairBuilder builder = domain.queue_pair(queue, queue);
  QueuePairBuilder kept_builder = taken_from(builder);
  expect_empty("weft::verbs::QueuePairBuilder", [&] { (void)builder.build(); });
  PreparedQueuePair prepared = kept_builder.build();
  const QueuePair released = std::move(prepared).release();
  expect_empty(
      "weft::verbs::PreparedQueuePair", [&] { (void)prepared.endpoint(); },
      [&] { (void)std::move(prepared).handshake({}); },
      [&] { (void)std::move(prepared).activate(1); }, [&] { (void)std::move(prepared).release(); },
      [&] { (void)prepared.raw(); });

  const auto kept = taken_from(domain);
  expect_empty(
      "weft::verbs::ProtectionDomain", [&] { (void)domain.allocate<int>(1); },
      [&] { (void)domain.share(); }, [&] { (void)domain.allocate_window(); },
      [&] { (void)domain.queue_pair(queue, queue); },
      [&] { (void)domain.create_shared_receive_queue({}); },
      [&] { (void)domain.create_address_handle({}); }, [&] { (void)domain.raw(); });
}

TEST(EmptyHandle, AddressHandles) {
  const Context context = test::open_device();
  const auto create = [&] {
    return context.create_domain().create_address_handle({.gid = context.query_gid(1, 0)});
  };
  WEFT_NEEDS(create());
  AddressHandle handle = create();
  AddressHandle kept = taken_from(handle);
  EXPECT_NE(kept.raw(), nullptr);
  expect_empty("weft::verbs::AddressHandle", [&] { (void)handle.raw(); });
  handle = std::move(kept);
  EXPECT_NE(handle.raw(), nullptr);
}

TEST(EmptyHandle, XrcDomains) {
  const Context context = test::open_device();
  if ((context.query().device_cap_flags & IBV_DEVICE_XRC) == 0) {
    GTEST_SKIP() << "the device has no XRC";
  }
  XrcDomain domain = context.open_xrc_domain();
  XrcDomain kept = taken_from(domain);
  EXPECT_NE(kept.raw(), nullptr);
  expect_empty("weft::verbs::XrcDomain", [&] { (void)domain.raw(); });
  domain = std::move(kept);
  EXPECT_NE(domain.raw(), nullptr);
}

// A queue pair of a shared receive queue that fails makes an event.
TEST(EmptyHandle, AsyncEvents) {
  const Context context = test::open_device();
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(4);
  const auto shared = domain.create_shared_receive_queue({});
  const auto queue_pair =
      domain.queue_pair(queue, queue).shared_receive_queue(shared).build().release();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  queue_pair.modify(attributes,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  queue_pair.fail();
  auto event = context.next_event(patience);
  ASSERT_TRUE(event);
  AsyncEvent kept = taken_from(*event);
  EXPECT_EQ(kept.type(), IBV_EVENT_QP_LAST_WQE_REACHED) << kept.name();
  expect_empty(
      "weft::verbs::AsyncEvent", [&] { (void)event->type(); }, [&] { (void)event->name(); },
      [&] { (void)event->raw(); });
  *event = std::move(kept);
  EXPECT_EQ(event->raw().element.qp, queue_pair.raw());
  // It is acknowledged once, so that the queue pair can be destroyed.
}

TEST(EmptyHandle, CompletionQueues) {
  const Context context = test::open_device();
  CompletionQueue queue = context.create_completion_queue(4);
  const auto kept = taken_from(queue);
  std::array<Completion, 2> room;
  expect_empty(
      "weft::verbs::CompletionQueue", [&] { (void)queue.poll(room); },
      [&] { (void)queue.for_each([](const Completion&) {}); },
      [&] { (void)queue.wait(room, Deadline::now()); }, [&] { queue.arm(); },
      [&] { queue.resize(8); }, [&] { (void)queue.counters(); }, [&] { (void)queue.capacity(); },
      [&] { (void)queue.raw(); }, [&] { (void)context.create_domain().queue_pair(queue, kept); });
  if (!test::own_device()) return;
  ExtendedCompletionQueue extended = context.create_extended_completion_queue(4);
  const auto kept_extended = taken_from(extended);
  expect_empty(
      "CompletionQueue", [&] { (void)extended.iterate(); }, [&] { (void)extended.poll(room); },
      [&] { (void)extended.raw_extended(); });
}

TEST(EmptyHandle, QueuePairs) {
  Pair pair;
  QueuePair& queue_pair = pair.a->queue_pair;
  const LocalSlice slice = pair.a->region.slice(0, 8);
  const RemoteSlice remote = pair.b->region.remote();
  auto kept = std::make_optional(taken_from(queue_pair));
  const auto check = [&] {
    expect_empty(
        "weft::verbs::QueuePair", [&] { (void)queue_pair.post_send(slice, 1); },
        [&] { (void)queue_pair.post_receive(slice, 1); },
        [&] { (void)queue_pair.post_write(slice, remote, 1); },
        [&] { (void)queue_pair.post_read(slice, remote, 1); },
        [&] { (void)queue_pair.post_fetch_and_add(slice, remote, 1, 1); },
        [&] { (void)queue_pair.post_invalidate(1, 1); }, [&] { (void)queue_pair.batch(); },
        [&] { (void)queue_pair.receive_batch(); }, [&] { (void)queue_pair.number(); },
        [&] { queue_pair.fail(); }, [&] { queue_pair.modify({}, 0); },
        [&] { (void)queue_pair.query(0); }, [&] { (void)queue_pair.state(); },
        [&] { queue_pair.join_group({}); }, [&] { (void)queue_pair.counters(); },
        [&] { (void)queue_pair.context(); }, [&] { (void)queue_pair.raw(); });
  };
  check();
  kept.reset();  // also when the object no longer exists
  check();
}

TEST(EmptyHandle, IdsAndEvents) {
  EventChannel events;
  Id listener(events);
  listener.bind({test::host(), 0});
  listener.listen();
  Id id(events);
  id.resolve_address({test::host(), listener.local_port()}, patience);
  ConnectionEvent event = expect(events, RDMA_CM_EVENT_ADDR_RESOLVED);
  {
    const ConnectionEvent kept = std::move(event);
    expect_empty(
        "weft::verbs::ConnectionEvent", [&] { (void)event.type(); }, [&] { (void)event.name(); },
        [&] { (void)event.status(); }, [&] { (void)event.private_data(); },
        [&] { (void)event.take_request(); }, [&] { (void)event.id(); }, [&] { (void)event.raw(); });
  }
  const auto kept_id = taken_from(id);
  expect_empty(
      "weft::verbs::Id",
      [&] {
        id.bind({"127.0.0.1", 0});
      },
      [&] { id.listen(); }, [&] { id.connect(); }, [&] { id.accept(); }, [&] { id.reject(); },
      [&] { id.establish(); }, [&] { id.disconnect(); }, [&] { id.migrate(events); },
      [&] { (void)id.context(); }, [&] { (void)id.local_address(); },
      [&] { (void)id.peer_address(); }, [&] { (void)id.local_port(); },
      [&] { id.set_ipv6_only(true); }, [&] { id.resolve_route(patience); },
      [&] { (void)id.raw(); });
  const auto kept_events = taken_from(events);
  expect_empty(
      "weft::verbs::EventChannel", [&] { (void)events.fd(); },
      [&] { (void)events.next(Deadline::now()); }, [&] { (void)events.raw(); },
      [&] { const Id other(events); });
}

}  // namespace
}  // namespace weft::verbs::testing
