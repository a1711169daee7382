// What peers cost that rdma_reject(3) has refused and that do not close.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "cm/fixture.h"
#include "cm/plain_peer.h"
#include "device/connect/linger.h"
#include "device/limits.h"
#include "support/own_figures.h"
#include "wire/mpa.h"

namespace weft::cm {
namespace {

constexpr std::size_t places = 8;
constexpr std::size_t peers = 24;
constexpr wire::MpaFrame request{.kind = wire::MpaKind::request, .crc = true, .revision = 1};

class Rejected : public CmTest {
 protected:
  Rejected() { settings_.strangers.refused = places; }
  void SetUp() override {
    CmTest::SetUp();
    listener_ = make_listener(passive_);
  }

  // A peer that was rejected, has not read the answer, and keeps its connection.
  PlainPeer reject_one() {
    PlainPeer peer = PlainPeer::connect(ntohs(listener_->route.addr.src_sin.sin_port));
    peer.send_frame(request, nullptr);
    rdma_cm_id* id = nullptr;
    if (const auto event = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)) id = event->id;
    if (!id) return peer;
    EXPECT_EQ(manager_->reject(id, nullptr, 0), 0);
    destroy(id);
    return peer;
  }

  // The peers of a round in their order, and the most descriptors that were held for them.
  struct Round {
    std::vector<PlainPeer> all;
    std::size_t most_held = 0;
    std::uint64_t resets = 0;
    std::chrono::nanoseconds took{};
  };
  Round reject_many() {
    const auto begin = std::chrono::steady_clock::now();
    const std::uint64_t resets_before = device_->refusals().reset;
    const std::size_t before = test::own_descriptors();
    Round round;
    for (std::size_t i = 0; i < peers && !HasFailure(); ++i) {
      round.all.push_back(reject_one());
      round.most_held =
          std::max(round.most_held, test::own_descriptors() - before - round.all.size());
    }
    round.resets = device_->refusals().reset - resets_before;
    round.took = std::chrono::steady_clock::now() - begin;
    return round;
  }
  void await_none_lingering() {
    const std::uint64_t end_ns = device::sys::now_ns() + 30'000'000'000;
    while (device_->refused_connections().count() > 0 && device::sys::now_ns() < end_ns) {
      std::this_thread::yield();
    }
  }
};

// Their number is bounded, and a newcomer costs the oldest one its connection.
TEST_F(Rejected, AreFewAndResetOldestFirst) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    await_none_lingering();
    const Round round = reject_many();
    ASSERT_FALSE(HasFailure());
    EXPECT_LE(round.most_held, places);
    // The first ones must not have ended by themselves before the last one came.
    if (round.took > std::chrono::nanoseconds(device::limits::linger_ns) / 2) continue;
    EXPECT_EQ(round.resets, peers - places);
    for (std::size_t i = 0; i < peers; ++i) {
      EXPECT_EQ(round.all[i].was_reset(), i < peers - places) << i;
    }
    return;
  }
  GTEST_SKIP() << "the machine is too slow to reject " << peers << " peers in half a second";
}

}  // namespace
}  // namespace weft::cm
