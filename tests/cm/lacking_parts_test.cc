// Files that come with a request or an acceptance between two processes, and that the receiver
// cannot take: it has no descriptor or no memory left at that moment, or has given them up.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cm/hostile_fixture.h"

namespace weft::cm {
namespace {

using device::pair_message::Answer;
using device::pair_message::Header;
using device::pair_message::Kind;

class LackingParts : public HostilePair {
 protected:
  // A connection that the hostile end has accepted.
  rdma_cm_id* established(HostileEnd& end, device::Context& context) {
    std::optional<HostileEnd::Message> request;
    rdma_cm_id* const client = ask(end, request);
    if (!request) return client;
    const HostileEnd::Whole reply = end.acceptance(context, *request);
    end.send(reply.header, reply.frame, reply.files);
    EXPECT_EQ(await_client(), RDMA_CM_EVENT_ESTABLISHED);
    return client;
  }

  // An acceptance of which parts are missing, and what the device says of it. The connection is
  // made by TCP then, where it is rejected.
  std::optional<HostileEnd::Message> accept_without(HostileEnd& end,
                                                    void (*remove)(HostileEnd::Whole&)) {
    std::optional<HostileEnd::Message> request;
    rdma_cm_id* const client = ask(end, request);
    if (!request) return std::nullopt;
    HostileEnd::Whole reply = end.acceptance(*context_, *request);
    remove(reply);
    end.send(reply.header, reply.frame, reply.files);
    EXPECT_EQ(await_client(), RDMA_CM_EVENT_REJECTED);
    auto answer = end.await();
    EXPECT_TRUE(answer && answer->header.number == request->header.number);
    destroy(client);
    return answer;
  }
};

TEST_F(LackingParts, OfAnAcceptanceEndNoOtherConnection) {
  std::optional end = HostileEnd::that_serves(*device_, address());
  rdma_cm_id* const first = established(*end, *context_);
  const auto without_inbox = accept_without(*end, [](HostileEnd::Whole& reply) {
    reply.header.inbox.file_number = 77;
    reply.files.clear();
  });
  ASSERT_TRUE(without_inbox);
  EXPECT_EQ(without_inbox->header.kind, Kind::lacks);
  EXPECT_NE(without_inbox->header.files.inboxes, 0);
  EXPECT_EQ(without_inbox->header.inbox.file_number, 77U);
  const auto without_context = accept_without(*end, [](HostileEnd::Whole& reply) {
    ++reply.header.mark.number;
    reply.header.files = {};
    reply.files.clear();
  });
  ASSERT_TRUE(without_context);
  EXPECT_EQ(without_context->header.kind, Kind::lacks);
  EXPECT_EQ(without_context->header.files.inboxes, 0);
  EXPECT_TRUE(quiet(active_));
  EXPECT_FALSE(end->is_closed());
  destroy(established(*end, *context_));
  end.reset();
  EXPECT_EQ(await_client(), RDMA_CM_EVENT_DISCONNECTED);
  destroy(first);
  expect_service();
}

TEST_F(LackingParts, OfARequestAreNamedInTheAnswer) {
  HostileEnd end = HostileEnd::that_dials(*device_);
  HostileEnd::Whole whole = end.request(*context_, target());
  end.send(whole.header, whole.frame);
  const auto answer = end.await();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.answer, Answer::lacking);
  EXPECT_EQ(answer->header.inbox.file_number, whole.header.inbox.file_number);
  EXPECT_EQ(answer->header.mark, whole.header.mark);
  EXPECT_TRUE(quiet(strangers_));
}

// A server that opens the device for each client has as many contexts.
TEST_F(LackingParts, ThereMayBeManyContexts) {
  HostileEnd end = HostileEnd::that_serves(*device_, address());
  std::vector<std::unique_ptr<device::Context>> contexts;
  for (int i = 0; i < 40; ++i) {
    contexts.push_back(std::make_unique<device::Context>(*device_));
    destroy(established(end, *contexts.back()));
  }
  EXPECT_TRUE(quiet(active_));
}

TEST_F(LackingParts, ContextsThatAreClosedTakeNoRoom) {
  HostileEnd end = HostileEnd::that_serves(*device_, address());
  for (std::size_t i = 0; i < device::limits::max_peer_contexts + 10; ++i) {
    SCOPED_TRACE(i);
    device::Context context(*device_);
    destroy(established(end, context));
    ASSERT_FALSE(HasFailure());
  }
}

// The peer has given up an inbox of its own that it could not map: it will not say so in it.
TEST_F(LackingParts, AnInboxThatThePeerCouldNotMapServesTheNextConnection) {
  HostileEnd end = HostileEnd::that_dials(*device_);
  std::vector<std::uint32_t> places;
  for (int i = 0; i < 3; ++i) {
    HostileEnd::Whole whole = end.request(*context_, target());
    end.send(whole.header, whole.frame, whole.files);
    const auto event = expect(strangers_, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_NE(event, nullptr);
    rdma_cm_id* const server = event->id;
    make_queue_pair(server);
    rdma_conn_param parameters{};
    ASSERT_EQ(manager_->accept(server, &parameters), 0);
    const auto answer = end.await();
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->header.answer, Answer::accepted);
    places.push_back(answer->header.inbox.file_number * 100 + answer->header.inbox.index);
    Header lacks;
    lacks.kind = Kind::lacks;
    lacks.number = answer->header.number;
    lacks.inbox = answer->header.inbox;
    lacks.files.inboxes = 1;
    end.send(lacks, {});
    // The file comes once more, because the peer does not have it.
    EXPECT_NE(answer->header.files.inboxes, 0);
    while (!quiet(strangers_)) (void)next(strangers_);
    destroy(server);
  }
  EXPECT_EQ(places[1], places[0]);
  EXPECT_EQ(places[2], places[0]);
}

}  // namespace
}  // namespace weft::cm
