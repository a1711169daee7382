// Event channels: waiting, order, acknowledgement, migration.
#include <fcntl.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "cm/fixture.h"

namespace weft::cm {
namespace {

class EventChannel : public CmTest {
 protected:
  void resolve(rdma_cm_id* id) {
    auto to = ipv4("127.0.0.1", 4711);
    ASSERT_EQ(manager_->resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000), 0);
  }
  void make_nonblocking(rdma_event_channel* channel) {
    ASSERT_EQ(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), 0);
  }
  static bool is_done(std::future<void>& future) {
    return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
};

TEST_F(EventChannel, NonBlockingSaysTryAgain) {
  make_nonblocking(active_);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(manager_->get_cm_event(active_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  rdma_cm_id* id = make_id(active_);
  resolve(id);
  EXPECT_FALSE(quiet(active_));
  ASSERT_EQ(manager_->get_cm_event(active_, &event), 0);
  EXPECT_EQ(event->id, id);
  manager_->ack_cm_event(event);
  EXPECT_EQ(manager_->get_cm_event(active_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  destroy(id);
}

TEST_F(EventChannel, BlockingWaits) {
  rdma_cm_id* id = make_id(active_);
  std::thread waiter([&] { expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED); });
  resolve(id);
  waiter.join();
  destroy(id);
}

// rping's event thread acknowledges the last event while the program is about to end.
TEST_F(EventChannel, ToDestroyItWaitsForWhoIsOnTheWayBackToIt) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not follow the stack of a cancelled thread";
#endif
  constexpr std::chrono::milliseconds patience{50};
  for (int round = 0; round < 20; ++round) {
    rdma_event_channel* const channel = manager_->create_event_channel();
    rdma_cm_id* const id = make_id(channel);
    std::promise<void> acknowledged;
    std::atomic<bool> destroying = false;
    std::atomic<bool> back = false;
    std::thread reader([&] {
      rdma_cm_event* event = nullptr;
      ASSERT_EQ(manager_->get_cm_event(channel, &event), 0);
      manager_->ack_cm_event(event);
      acknowledged.set_value();
      while (!destroying) std::this_thread::yield();
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      const bool late = back.exchange(true);
      if (!late) manager_->get_cm_event(channel, &event);
    });
    resolve(id);
    acknowledged.get_future().wait();
    destroy(id);
    destroying = true;
    const auto start = std::chrono::steady_clock::now();
    manager_->destroy_event_channel(channel);
    // On a busy machine the reader may be late for the remaining events.
    EXPECT_TRUE(back.exchange(true) || std::chrono::steady_clock::now() - start >= patience);
    pthread_cancel(reader.native_handle());  // there will be no event
    reader.join();
  }
}

// rping starts its event thread before it binds its address, and ends where that fails.
TEST_F(EventChannel, AThreadThatComesAfterTheEndGetsAnError) {
  rdma_event_channel* const channel = manager_->create_event_channel();
  manager_->destroy_event_channel(channel);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(manager_->get_cm_event(channel, &event), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(EventChannel, AThreadMayComeWhileItIsDestroyed) {
  for (int round = 0; round < 300; ++round) {
    rdma_event_channel* const channel = manager_->create_event_channel();
    make_nonblocking(channel);
    std::atomic<bool> comes = false;
    std::thread reader([&] {
      comes = true;
      rdma_cm_event* event = nullptr;
      EXPECT_EQ(manager_->get_cm_event(channel, &event), -1);
      EXPECT_TRUE(errno == EAGAIN || errno == EBADF) << std::strerror(errno);
    });
    while (!comes) std::this_thread::yield();
    manager_->destroy_event_channel(channel);
    reader.join();
  }
}

TEST_F(EventChannel, SeveralThreadsShareTheEvents) {
  constexpr int count = 16;
  std::vector<rdma_cm_id*> ids;
  std::vector<std::thread> waiters;
  std::atomic<int> seen = 0;
  for (int i = 0; i < count; ++i) {
    waiters.emplace_back([&] {
      rdma_cm_event* event = nullptr;
      ASSERT_EQ(manager_->get_cm_event(active_, &event), 0);
      ++seen;
      manager_->ack_cm_event(event);
    });
  }
  for (int i = 0; i < count; ++i) {
    ids.push_back(make_id(active_));
    resolve(ids.back());
  }
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(seen, count);
  for (rdma_cm_id* id : ids) destroy(id);
}

TEST_F(EventChannel, EventsKeepTheirOrder) {
  std::vector<rdma_cm_id*> ids;
  for (int i = 0; i < 5; ++i) {
    ids.push_back(make_id(active_));
    resolve(ids.back());
  }
  for (rdma_cm_id* id : ids) EXPECT_EQ(expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED)->id, id);
  for (rdma_cm_id* id : ids) destroy(id);
}

TEST_F(EventChannel, DestroyWithdrawsWhatNobodyFetched) {
  rdma_cm_id* first = make_id(active_);
  rdma_cm_id* second = make_id(active_);
  resolve(first);
  resolve(second);
  destroy(first);
  EXPECT_EQ(expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED)->id, second);
  EXPECT_TRUE(quiet(active_));
  destroy(second);
}

TEST_F(EventChannel, DestroyWaitsForAcknowledgement) {
  rdma_cm_id* id = make_id(active_);
  resolve(id);
  auto event = expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED);
  auto destroyed = std::async(std::launch::async, [&] { destroy(id); });
  std::this_thread::yield();
  EXPECT_FALSE(is_done(destroyed));
  event.reset();
  destroyed.get();
}

TEST_F(EventChannel, NewIdMayGoBeforeItsRequestIsAcknowledged) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  make_queue_pair(client);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
  destroy(request->id);  // the event counts for the listener
  expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
  destroy(client);
}

TEST_F(EventChannel, ChannelMayGoBeforeItsIds) {
  rdma_event_channel* channel = manager_->create_event_channel();
  rdma_cm_id* id = make_id(channel);
  manager_->destroy_event_channel(channel);
  resolve(id);
  destroy(id);
}

TEST_F(EventChannel, MigrationTakesPendingEventsAlong) {
  rdma_cm_id* id = make_id(active_);
  rdma_cm_id* other = make_id(active_);
  resolve(other);
  resolve(id);
  ASSERT_EQ(manager_->migrate_id(id, passive_), 0);
  EXPECT_EQ(id->channel, passive_);
  EXPECT_EQ(expect(passive_, RDMA_CM_EVENT_ADDR_RESOLVED)->id, id);
  EXPECT_EQ(expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED)->id, other);
  EXPECT_TRUE(quiet(active_));
  ASSERT_EQ(manager_->resolve_route(id, 1000), 0);
  expect(passive_, RDMA_CM_EVENT_ROUTE_RESOLVED);
  destroy(id);
  destroy(other);
}

TEST_F(EventChannel, MigrationWaitsForAcknowledgement) {
  rdma_cm_id* id = make_id(active_);
  resolve(id);
  auto event = expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED);
  auto migrated = std::async(std::launch::async, [&] { manager_->migrate_id(id, passive_); });
  std::this_thread::yield();
  EXPECT_FALSE(is_done(migrated));
  event.reset();
  migrated.get();
  destroy(id);
}

TEST_F(EventChannel, MigratedListenerMakesItsIdsThere) {
  rdma_cm_id* listener = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener);
  make_queue_pair(client);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  pollfd entry{passive_->fd, POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, patience_ms), 1);
  rdma_event_channel* other = manager_->create_event_channel();
  ASSERT_EQ(manager_->migrate_id(listener, other), 0);
  EXPECT_TRUE(quiet(passive_));
  rdma_cm_id* server = nullptr;
  if (const auto request = expect(other, RDMA_CM_EVENT_CONNECT_REQUEST)) server = request->id;
  EXPECT_EQ(server->channel, other);
  destroy(server);
  destroy(client);
  destroy(listener);
  manager_->destroy_event_channel(other);
}

TEST_F(EventChannel, MigrationToNoChannelMakesCallsWait) {
  rdma_cm_id* id = make_id(active_);
  ASSERT_EQ(manager_->migrate_id(id, nullptr), 0);
  EXPECT_NE(id->channel, active_);
  resolve(id);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(manager_->migrate_id(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(manager_->migrate_id(id, active_), 0);
  EXPECT_EQ(id->event, nullptr);
  ASSERT_EQ(manager_->resolve_route(id, 1000), 0);
  expect(active_, RDMA_CM_EVENT_ROUTE_RESOLVED);
  destroy(id);
}

TEST_F(EventChannel, EveryEventHasItsName) {
  for (int i = RDMA_CM_EVENT_ADDR_RESOLVED; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT; ++i) {
    const std::string name = cm::event_str(static_cast<rdma_cm_event_type>(i));
    EXPECT_EQ(name.rfind("RDMA_CM_EVENT_", 0), 0U);
  }
}

}  // namespace
}  // namespace weft::cm
