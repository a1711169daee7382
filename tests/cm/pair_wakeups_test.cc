// How often a connection between two processes that have met wakes the process of its peer: a
// wake-up costs a message and a change of thread, so there is none that tells the peer nothing new.
#include <optional>
#include <utility>

#include "cm/hostile_fixture.h"

namespace weft::cm {
namespace {

class PairWakeups : public HostilePair {
 protected:
  // A client of the device whose peer is `end`.
  rdma_cm_id* connect_to(HostileEnd& end) {
    std::optional<HostileEnd::Message> request;
    rdma_cm_id* const client = ask(end, request);
    if (!request || !end.map(*request)) return client;
    number_ = request->header.number;
    const HostileEnd::Whole reply = end.acceptance(*context_, *request);
    end.send(reply.header, reply.frame, reply.files);
    EXPECT_EQ(await_client(), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_TRUE(take_bell(end)) << "of the first FPDU";
    return client;
  }

  // Whether the device has rung since the last call.
  static bool take_bell(HostileEnd& end) {
    constexpr std::size_t of_serving_side = 1;
    return end.bells(of_serving_side).pending.exchange(0) != 0;
  }

  std::uint32_t number_ = 0;
};

TEST_F(PairWakeups, OneTellsOfTheEnd) {
  HostileEnd end = HostileEnd::that_serves(*device_, address());
  rdma_cm_id* const client = connect_to(end);
  ASSERT_NE(end.device_inbox(), nullptr);
  ASSERT_EQ(manager_->disconnect(client), 0);
  EXPECT_EQ(await_client(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(end.own().end.load(), device::inbox::End::closed);
  EXPECT_TRUE(take_bell(end));
  destroy(client);
  EXPECT_EQ(end.own().leaving.done.load(), 1U);
  EXPECT_FALSE(take_bell(end)) << "it knows";
}

TEST_F(PairWakeups, OneTellsOfAnEndWithoutADisconnection) {
  HostileEnd end = HostileEnd::that_serves(*device_, address());
  rdma_cm_id* const client = connect_to(end);
  ASSERT_NE(end.device_inbox(), nullptr);
  destroy(client);
  EXPECT_EQ(end.own().end.load(), device::inbox::End::closed);
  EXPECT_TRUE(take_bell(end));
}

TEST_F(PairWakeups, NoneGoesToAnEndThatHasReportedItsOwn) {
  HostileEnd end = HostileEnd::that_serves(*device_, address());
  rdma_cm_id* const client = connect_to(end);
  ASSERT_NE(end.device_inbox(), nullptr);
  end.device_inbox()->end = device::inbox::End::closed;
  end.ring(number_);
  EXPECT_EQ(await_client(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(end.own().end.load(), device::inbox::End::closed);
  destroy(client);
  EXPECT_EQ(end.own().leaving.done.load(), 1U);
  EXPECT_FALSE(take_bell(end)) << "it does not look any more";
}

}  // namespace
}  // namespace weft::cm
