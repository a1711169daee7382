// Peers whose programs take their time before they accept or reject.
#include <gmock/gmock.h>

#include "base/own_options.h"
#include "cm/fixture.h"
#include "cm/plain_peer.h"

namespace weft::cm {
namespace {

constexpr std::uint64_t short_ns = 50'000'000;

class LateAnswer : public CmTest {
 protected:
  LateAnswer() { options_ = {.handshake_timeout_ns = short_ns}; }

  // The listener closes a connection without an MPA request after the time for handshakes. So the
  // timers of earlier handshakes are over when this returns.
  void await_handshake_timeout() {
    PlainPeer silent = PlainPeer::connect(ntohs(Manager::get_src_port(listener_)));
    EXPECT_TRUE(silent.at_end());
  }

  // A client whose request the server's program has, and leaves alone for this time.
  void request() {
    listener_ = make_listener(passive_);
    client_ = make_client(active_, listener_);
    make_queue_pair(client_);
    rdma_conn_param parameters{};
    EXPECT_EQ(manager_->connect(client_, &parameters), 0);
    if (const auto event = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)) server_ = event->id;
    await_handshake_timeout();
  }

  void destroy_both() {
    destroy(client_);
    if (server_) destroy(server_);
  }

  rdma_cm_id* client_ = nullptr;
  rdma_cm_id* server_ = nullptr;
};

// iWARP adapters wait no longer than for a handshake.
TEST_F(LateAnswer, TheActiveSideWaitsAsAdaptersDo) {
  request();
  if (settings_.personality == device::Personality::iwarp) {
    expect(active_, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
    return destroy_both();
  }
  EXPECT_TRUE(quiet(active_));
  ASSERT_NE(server_, nullptr);
  make_queue_pair(server_);
  rdma_conn_param parameters{};
  EXPECT_EQ(manager_->accept(server_, &parameters), 0);
  expect(active_, RDMA_CM_EVENT_ESTABLISHED);
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  destroy_both();
}

// The user is informed meanwhile, because the peer may be a program that speaks plain TCP.
TEST_F(LateAnswer, TheWaitIsExplained) {
  if (settings_.personality == device::Personality::iwarp) {
    GTEST_SKIP() << "iWARP adapters wait no longer";
  }
  testing::internal::CaptureStderr();
  request();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::HasSubstr(" has not answered the connection request yet"));
  EXPECT_THAT(text, testing::HasSubstr("WEFT_PORT_OFFSET=n, on both sides"));
  destroy_both();
}

// rdma_set_option(3) with a name that only layers of Weft use.
TEST_F(LateAnswer, AnIdMayHaveATimeoutOfItsOwn) {
  options_ = {};
  listener_ = make_listener(passive_);
  client_ = make_client(active_, listener_);
  make_queue_pair(client_);
  auto timeout_ns = short_ns;
  ASSERT_EQ(manager_->set_option(client_, RDMA_OPTION_ID, reply_timeout_option, &timeout_ns,
                                 sizeof timeout_ns),
            0);
  rdma_conn_param parameters{};
  EXPECT_EQ(manager_->connect(client_, &parameters), 0);
  expect(active_, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
  destroy(client_);
}

// The same. The first attempt is repeated for a while, because a server may be about to listen.
TEST_F(LateAnswer, AnIdMayBeRefusedAtOnce) {
  listener_ = make_listener(passive_);
  rdma_cm_id* const repeated = make_client(active_, listener_);
  client_ = make_client(active_, listener_);
  destroy(listener_);
  listener_ = nullptr;
  std::uint64_t at_once_ns = 0;
  ASSERT_EQ(manager_->set_option(client_, RDMA_OPTION_ID, refused_time_option, &at_once_ns,
                                 sizeof at_once_ns),
            0);
  for (rdma_cm_id* const each : {repeated, client_}) {
    make_queue_pair(each);
    rdma_conn_param parameters{};
    EXPECT_EQ(manager_->connect(each, &parameters), 0);
  }
  for (rdma_cm_id* const each : {client_, repeated}) {
    if (const auto event = expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED)) {
      EXPECT_EQ(event->id, each);
    }
    destroy(each);
  }
}

}  // namespace
}  // namespace weft::cm
