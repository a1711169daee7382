// rdma_cm as objects: private data, rejection, disconnection, wrong addresses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "support/device.h"
#include "support/needs.h"
#include "verbs/pair.h"

namespace weft::verbs::testing {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Id resolved(const EventChannel& events, std::uint16_t port) {
  Id id(events);
  id.resolve_address({test::host(), port}, patience);
  (void)expect(events, RDMA_CM_EVENT_ADDR_RESOLVED);
  id.resolve_route(patience);
  (void)expect(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return id;
}

// Both sides report the end. The passive side answers it, which InfiniBand and RoCE wait for.
void disconnect(Pair& pair) {
  pair.a->id.disconnect();
  for (int side = 0; side < 2; ++side) {
    const auto event = expect(pair.events, RDMA_CM_EVENT_DISCONNECTED);
    if (event.id() == pair.b->id.raw()) pair.b->id.disconnect();
  }
}

TEST(RdmaCm, PrivateDataOfBothSidesArrives) {
  const EventChannel events;
  const Id listener(events);
  listener.bind({test::host(), 0});
  listener.listen();
  End a(resolved(events, listener.local_port()), {});
  a.id.connect({.private_data = bytes_of("who is there")});
  auto request = expect(events, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_TRUE(text_of(request.private_data()).starts_with("who is there"));
  End b(request.take_request(), {});
  EXPECT_THROW((void)request.take_request(), std::logic_error);
  b.id.accept({.private_data = bytes_of("me")});
  auto first = expect(events, RDMA_CM_EVENT_ESTABLISHED);
  auto second = expect(events, RDMA_CM_EVENT_ESTABLISHED);
  const auto& active = first.id() == a.id.raw() ? first : second;
  EXPECT_TRUE(text_of(active.private_data()).starts_with("me"));
}

TEST(RdmaCm, two_connections) {
  Pair first;
  Pair second;
  for (Pair* pair : {&first, &second}) {
    pair->a->region[0] = pair == &first ? 1 : 2;
    ASSERT_EQ(pair->b->queue_pair.post_receive(pair->b->region.slice(0, 8), 1), 0);
    ASSERT_EQ(pair->a->queue_pair.post_send(pair->a->region.slice(0, 8), 2), 0);
  }
  EXPECT_TRUE(first.b->await().ok());
  EXPECT_TRUE(second.b->await().ok());
  EXPECT_EQ(first.b->region[0], 1);
  EXPECT_EQ(second.b->region[0], 2);
  disconnect(first);
  EXPECT_FALSE(second.events.next(Deadline::now())) << "the other one goes on";
  WEFT_NEEDS_STATES(second.a->context);
  EXPECT_EQ(second.a->queue_pair.state(), IBV_QPS_RTS);
}

TEST(RdmaCm, ARejectionSaysWhy) {
  const EventChannel events;
  const Id listener(events);
  listener.bind({test::host(), 0});
  listener.listen();
  End a(resolved(events, listener.local_port()), {});
  a.id.connect();
  {
    auto request = expect(events, RDMA_CM_EVENT_CONNECT_REQUEST);
    request.take_request().reject(bytes_of("full"));
  }
  const auto answer = expect(events, RDMA_CM_EVENT_REJECTED);
  EXPECT_TRUE(text_of(answer.private_data()).starts_with("full"));
}

TEST(RdmaCm, ARequestThatNobodyTakesIsRejected) {
  const EventChannel events;
  const Id listener(events);
  listener.bind({test::host(), 0});
  listener.listen();
  End a(resolved(events, listener.local_port()), {});
  a.id.connect();
  (void)expect(events, RDMA_CM_EVENT_CONNECT_REQUEST);
  (void)expect(events, RDMA_CM_EVENT_REJECTED);
}

TEST(RdmaCm, BothSidesHearOfADisconnection) {
  Pair pair;
  disconnect(pair);
  WEFT_NEEDS_STATES(pair.b->context);
  EXPECT_EQ(pair.b->queue_pair.state(), IBV_QPS_ERR);
}

TEST(RdmaCm, AnIdMovesToAnotherChannel) {
  Pair pair;
  const EventChannel other;
  pair.b->id.migrate(other);
  pair.a->id.disconnect();
  EXPECT_EQ(expect(other, RDMA_CM_EVENT_DISCONNECTED).id(), pair.b->id.raw());
  pair.b->id.disconnect();  // the answer, which InfiniBand and RoCE wait for
  EXPECT_EQ(expect(pair.events, RDMA_CM_EVENT_DISCONNECTED).id(), pair.a->id.raw());
}

TEST(RdmaCm, ErrorsNameTheAddress) {
  const EventChannel events;
  const Id listener(events);
  listener.bind({test::host(), 0});
  listener.listen();
  const Id second(events);
  try {
    second.bind({test::host(), listener.local_port()});
    second.listen();
    FAIL() << "two listeners on one port";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EADDRINUSE);
    EXPECT_NE(std::string(error.what()).find(std::to_string(listener.local_port())),
              std::string::npos);
  }
  EXPECT_THROW(second.resolve_address({"no.such.host.invalid", 1}, patience), Error);
  EXPECT_THROW((void)second.context(), Error);
}

}  // namespace
}  // namespace weft::verbs::testing
