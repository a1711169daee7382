// Pairs of processes that come, are used and end in many threads at once (device/local/
// process_pairs.h): the bound of idle ones, the pool of inboxes, and closing while others read. For
// ThreadSanitizer above all.
#include <dirent.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cm/hostile_end.h"
#include "device/limits.h"
#include "device/local/process_pairs.h"
#include "device/system.h"

namespace weft::cm {
namespace {

using device::pair_message::Kind;

int descriptors() {
  int found = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder)) ++found;
  closedir(folder);
  return found;
}

class ProcessPairRace : public CmTest {
 protected:
  static constexpr int times = 100;

  void SetUp() override {
    CmTest::SetUp();
    if (settings_.same_host == device::SameHost::off) GTEST_SKIP() << "about leaving TCP";
    ASSERT_TRUE(context_->open_grants());
  }

  [[nodiscard]] static sockaddr_storage address_of(rdma_cm_id* listener) {
    sockaddr_storage address{};
    std::memcpy(&address, rdma_get_local_addr(listener), sizeof(sockaddr_in));
    return address;
  }

  // A listener with channels of its own, so that each thread has its own events.
  struct Place {
    rdma_event_channel* active = nullptr;
    rdma_event_channel* passive = nullptr;
    rdma_cm_id* listener = nullptr;
  };
  Place make_place() {
    Place place{manager_->create_event_channel(), manager_->create_event_channel(), nullptr};
    place.listener = make_listener(place.passive);
    return place;
  }
  void remove(const Place& place) {
    manager_->destroy_id(place.listener);
    manager_->destroy_event_channel(place.active);
    manager_->destroy_event_channel(place.passive);
  }

  // A connection, a message, and an end.
  void converse(const Place& place, test::Random& random) {
    rdma_cm_id* const client = make_client(place.active, place.listener);
    make_queue_pair(client);
    rdma_conn_param parameters{};
    ASSERT_EQ(manager_->connect(client, &parameters), 0);
    rdma_cm_id* const server = expect(place.passive, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    make_queue_pair(server);
    ASSERT_EQ(manager_->accept(server, &parameters), 0);
    expect(place.active, RDMA_CM_EVENT_ESTABLISHED);
    expect(place.passive, RDMA_CM_EVENT_ESTABLISHED);
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    ASSERT_EQ(ibv_post_recv(server->qp, &receive, &bad_receive), 0);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(client->qp, &send, &bad), 0);
    EXPECT_EQ(completion_of(server->recv_cq).status, IBV_WC_SUCCESS);
    if (random.chance(2)) {
      ASSERT_EQ(manager_->disconnect(client), 0);
      expect(place.active, RDMA_CM_EVENT_DISCONNECTED);
      expect(place.passive, RDMA_CM_EVENT_DISCONNECTED);
    }
    const bool client_first = random.chance(2);
    destroy(client_first ? client : server);
    destroy(client_first ? server : client);
  }

  // Rejects what pairs that are made by hand ask for.
  void reject_requests(const Place& place, const std::atomic<bool>& over) {
    while (!over) {
      pollfd entry{place.passive->fd, POLLIN, 0};
      constexpr int look_ms = 10;
      if (::poll(&entry, 1, look_ms) != 1) continue;
      auto event = next(place.passive);
      if (!event || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
      rdma_cm_id* const id = event->id;
      event.reset();
      manager_->reject(id, nullptr, 0);
      manager_->destroy_id(id);
    }
  }

  // More pairs than the device keeps without a connection. Some have asked, and some end here.
  void come_and_go(const Place& place, std::uint64_t seed) {
    test::Random random(seed);
    std::deque<HostileEnd> ends;
    for (int i = 0; i < times; ++i) {
      HostileEnd end = HostileEnd::that_dials(*device_);
      auto whole = end.request(*context_, address_of(place.listener));
      if (random.chance(2)) end.send(whole.header, whole.frame, whole.files);
      if (random.chance(4)) end.send(whole.header, whole.frame, whole.files);  // closed for that
      if (random.chance(2)) end.ring(0);
      whole.header.kind = Kind::cancel;
      if (random.chance(3)) end.send(whole.header, whole.frame);
      ends.push_back(std::move(end));
      if (random.chance(3)) ends.pop_front();
      (void)device_->process_pairs().towards(address_of(place.listener));
    }
  }
};

TEST_F(ProcessPairRace, ThreadsMakeUseAndEndThem) {
  const int before = descriptors();
  const Place requested = make_place();
  const std::array places{make_place(), make_place()};
  std::atomic<bool> over{false};
  std::thread rejecting([&] { reject_requests(requested, over); });
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&, seed] { come_and_go(requested, seed); });
  }
  for (const Place& place : places) {
    threads.emplace_back([&] {
      test::Random random(reinterpret_cast<std::uintptr_t>(&place));
      for (int i = 0; i < times; ++i) converse(place, random);
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  rejecting.join();
  for (const Place& place : places) remove(place);
  remove(requested);
  // The device learns of the end of a pair by its thread. Each process keeps its own pair.
  constexpr int kept = 2 * 16;
  const std::uint64_t end_ns = device::sys::now_ns() + std::uint64_t{patience_ms} * 1'000'000;
  while (descriptors() > before + kept && device::sys::now_ns() < end_ns) device::sys::yield();
  EXPECT_LE(descriptors(), before + kept);
}

}  // namespace
}  // namespace weft::cm
