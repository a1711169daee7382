// A process of the same user whose messages contradict themselves: what the program learns is what
// the device has checked and carried out.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "cm/hostile_fixture.h"

namespace weft::cm {
namespace {

namespace inbox = device::inbox;
using iwarp::Operation;

// A connection to a hostile end that the device serves, with receives of `receive_bytes`.
class HostileMessage : public HostilePair {
 protected:
  static constexpr std::uint32_t receive_bytes = 64;

  void SetUp() override {
    HostilePair::SetUp();
    if (IsSkipped()) return;
    domain_.reset(context_->allocate_domain());
    const auto at = reinterpret_cast<std::uint64_t>(memory_.data());
    region_ = context_->register_memory(*domain_, memory_.data(), memory_.size(), at,
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ASSERT_NE(region_, nullptr);
    connect();
  }
  void TearDown() override {
    if (server_) destroy(server_);
    if (region_) context_->deregister_memory(region_);
    domain_.reset();
    HostilePair::TearDown();
  }

  void connect() {
    end_ = HostileEnd::that_dials(*device_);
    end_->own().open.store(1);
    const HostileEnd::Whole request = end_->request(*context_, target());
    number_ = request.header.number;
    end_->send(request.header, request.frame, request.files);
    server_ = expect(strangers_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    auto attributes = queue_pair_attributes();
    ASSERT_EQ(manager_->create_qp(server_, &domain_->pd, &attributes), 0);
    ibv_sge piece{reinterpret_cast<std::uint64_t>(memory_.data()), receive_bytes, region_->lkey};
    ibv_recv_wr receive{};
    receive.sg_list = &piece;
    receive.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(server_->qp, &receive, &bad), 0);
    rdma_conn_param parameters{};
    ASSERT_EQ(manager_->accept(server_, &parameters), 0);
    auto reply = end_->await();
    ASSERT_TRUE(reply);
    ASSERT_TRUE(end_->map(*reply));
  }

  // Puts a message into the inbox of the device, which has none before it.
  void put(inbox::MessageHeader header, const inbox::AccessRequest* request) {
    inbox::Inbox& to = *end_->device_inbox();
    const std::uint64_t position = to.consumed.load();
    inbox::Slot& slot = to.ring[position % inbox::slots];
    header.slots = 1;
    std::memcpy(slot.data.data(), &header, sizeof header);
    std::byte* at = slot.data.data() + sizeof header;
    if (request) {
      inbox::AccessRequest sent = *request;
      // In a staged connection the payload is in the staging area.
      if (sent.part.bytes == 0) {
        sent.part.bytes = static_cast<std::uint32_t>(request->length_bytes);
      }
      std::memcpy(at, &sent, sizeof sent);
      // Otherwise it is memory of this process.
      const inbox::Piece piece{reinterpret_cast<std::uint64_t>(memory_.data()) + 4096,
                               request->length_bytes};
      std::memcpy(at + sizeof *request, &piece, sizeof piece);
    }
    slot.stamp.store(position + 1);
    end_->ring(number_);
  }
  ibv_wc received() { return completion_of(server_->recv_cq); }

  std::unique_ptr<device::ProtectionDomain> domain_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(8192);
  ibv_mr* region_ = nullptr;
  std::optional<HostileEnd> end_;
  std::uint32_t number_ = 0;
  rdma_cm_id* server_ = nullptr;
};

// The header says that more has come than the receive has room for.
TEST_F(HostileMessage, ASendThatIsFetchedHasTheSizeThatWasFetched) {
  const inbox::AccessRequest request{
      .number = 1, .operation = Operation::send, .pieces = 1, .length_bytes = receive_bytes};
  put({.kind = inbox::Kind::request, .length_bytes = 0xFFFF'FFFF}, &request);
  const ibv_wc completion = received();
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion.byte_len, receive_bytes);
}

TEST_F(HostileMessage, AWriteThatIsFetchedHasTheSizeThatWasFetched) {
  const inbox::AccessRequest request{.number = 1,
                                     .operation = Operation::write_immediate,
                                     .flags = inbox::flag_immediate,
                                     .pieces = 1,
                                     .stag = region_->rkey,
                                     .offset = reinterpret_cast<std::uint64_t>(memory_.data()),
                                     .length_bytes = 8};
  put({.kind = inbox::Kind::request, .length_bytes = 0xFFFF'FFFF}, &request);
  const ibv_wc completion = received();
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion.byte_len, 8U);
  EXPECT_NE(completion.wc_flags & IBV_WC_WITH_IMM, 0U);
}

// A program that reads of an invalidation relies on it: the peer cannot access the memory any more.
TEST_F(HostileMessage, NoneSaysThatAnStagIsInvalidWithoutInvalidatingIt) {
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    if (i > 0) connect();
    ASSERT_FALSE(HasFatalFailure());
    inbox::MessageHeader header{
        .flags = inbox::flag_invalidate, .length_bytes = 8, .rkey = region_->rkey};
    inbox::AccessRequest request{.number = 1, .operation = Operation::send, .pieces = 1};
    request.length_bytes = 8;
    if (i >= 2) header.kind = inbox::Kind::request;
    if (i == 1) header.kind = inbox::Kind::written;
    if (i == 3) {
      request.operation = Operation::write_immediate;
      request.flags = inbox::flag_invalidate | inbox::flag_immediate;
      request.stag = region_->rkey;
      request.offset = reinterpret_cast<std::uint64_t>(memory_.data());
    }
    put(header, i >= 2 ? &request : nullptr);
    const ibv_wc completion = received();
    const bool told =
        completion.status == IBV_WC_SUCCESS && (completion.wc_flags & IBV_WC_WITH_INV) != 0;
    EXPECT_FALSE(told);
    destroy(std::exchange(server_, nullptr));
    while (!quiet(strangers_)) next(strangers_);
  }
  expect_service();
}

// The same with a process that copies through shared memory.
class HostileStaged : public HostileMessage {
 protected:
  HostileStaged() { settings_.same_host = device::SameHost::staged; }
};

// What it says about the place of the payload.
TEST_F(HostileStaged, APartThatCannotBeEndsTheConnection) {
  const std::array wrong{
      inbox::Part{.offset = 0, .bytes = 8, .at = inbox::staging_bytes - 4},
      inbox::Part{.offset = 0, .bytes = 8, .at = 0xFFFF'FFFC},
      inbox::Part{.offset = 0, .bytes = 9, .at = 0},
      inbox::Part{.offset = 1, .bytes = 8, .at = 0},
      inbox::Part{.offset = ~std::uint64_t{3}, .bytes = 8, .at = 0},
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    SCOPED_TRACE(i);
    if (i > 0) connect();
    ASSERT_FALSE(HasFatalFailure());
    const inbox::AccessRequest request{
        .number = 1, .operation = Operation::send, .length_bytes = 8, .part = wrong[i]};
    put({.kind = inbox::Kind::request, .length_bytes = 8}, &request);
    EXPECT_EQ(received().status, IBV_WC_WR_FLUSH_ERR);
    destroy(std::exchange(server_, nullptr));
    while (!quiet(strangers_)) next(strangers_);
  }
  expect_service();
}

// A Send whose parts do not agree changes nothing but its own receive.
TEST_F(HostileStaged, PartsOfDifferentRequestsStayInTheReceive) {
  std::ranges::fill(memory_, std::byte{7});
  inbox::AccessRequest request{.number = 1, .operation = Operation::send, .length_bytes = 64};
  request.part = {.offset = 0, .bytes = 32, .at = 0};
  put({.kind = inbox::Kind::request, .length_bytes = 64}, &request);
  while (end_->device_inbox()->consumed.load() < 1) device::sys::yield();
  request.length_bytes = 4096;
  request.part = {.offset = 4000, .bytes = 96, .at = 0};
  put({.kind = inbox::Kind::request, .length_bytes = 4096}, &request);
  EXPECT_NE(received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(std::ranges::all_of(std::span(memory_).subspan(receive_bytes),
                                  [](std::byte byte) { return byte == std::byte{7}; }));
}

}  // namespace
}  // namespace weft::cm
