// Events of completion queues and of the device, and threads that wait for them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "provider/connected_pair.h"

namespace weft::provider {
namespace {

using Events = testing::ConnectedPair;

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

TEST_F(Events, ACompletionOfAnArmedQueueIsOneEvent) {
  connect();
  ASSERT_EQ(passive_.post_receive(), 0);
  ASSERT_EQ(passive_.post_receive(), 0);
  ASSERT_EQ(ibv_req_notify_cq(passive_.cq, 0), 0);
  EXPECT_FALSE(readable(passive_.channel->fd));
  ASSERT_EQ(active_.post_send(), 0);
  ASSERT_EQ(active_.post_send(), 0);

  ibv_cq* which = nullptr;
  void* context = nullptr;
  ASSERT_EQ(table_.get_cq_event(passive_.channel, &which, &context), 0);
  EXPECT_EQ(which, passive_.cq);
  EXPECT_EQ(context, &passive_);
  table_.ack_cq_events(passive_.cq, 1);
  for (int i = 0; i < 2; ++i) {
    const ibv_wc completion = active_.await_completion();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  }
  EXPECT_FALSE(readable(passive_.channel->fd));  // armed once, notified once
  // A poll that finds the first one in the queue need not look for more.
  for (int i = 0; i < 2; ++i) {
    const ibv_wc completion = passive_.await_completion();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  }
}

// Programs with an event loop (brpc, Mooncake) watch the channel with EPOLLET, and need an edge for
// each event, also while earlier ones have not been taken.
TEST_F(Events, EachEventIsAnEdge) {
  connect();
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  epoll_event watched{.events = EPOLLIN | EPOLLET, .data = {.fd = passive_.channel->fd}};
  ASSERT_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, passive_.channel->fd, &watched), 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(passive_.post_receive(), 0);
    ASSERT_EQ(ibv_req_notify_cq(passive_.cq, 0), 0);
    ASSERT_EQ(active_.post_send(), 0);
    epoll_event found{};
    ASSERT_EQ(epoll_wait(loop, &found, 1, 20'000), 1) << "event " << i;
    ibv_wc completion{};
    ASSERT_EQ(ibv_poll_cq(passive_.cq, 1, &completion), 1);
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(active_.await_completion().status, IBV_WC_SUCCESS);
  }
  for (int i = 0; i < 3; ++i) {
    ibv_cq* which = nullptr;
    void* context = nullptr;
    ASSERT_EQ(table_.get_cq_event(passive_.channel, &which, &context), 0);
    EXPECT_EQ(which, passive_.cq);
  }
  EXPECT_FALSE(readable(passive_.channel->fd));
  table_.ack_cq_events(passive_.cq, 3);
  close(loop);
}

TEST_F(Events, NonBlockingChannelsSayEagain) {
  connect();
  ASSERT_EQ(fcntl(passive_.channel->fd, F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(fcntl(passive_.id->verbs->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_cq* which = nullptr;
  void* context = nullptr;
  EXPECT_EQ(table_.get_cq_event(passive_.channel, &which, &context), -1);
  EXPECT_EQ(errno, EAGAIN);
  ibv_async_event event{};
  EXPECT_EQ(table_.get_async_event(passive_.id->verbs, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Events, DestroyingAQueueWaitsForAcknowledgement) {
  connect();
  ASSERT_EQ(passive_.post_receive(), 0);
  ASSERT_EQ(ibv_req_notify_cq(passive_.cq, 0), 0);
  ASSERT_EQ(active_.post_send(), 0);
  ibv_cq* which = nullptr;
  void* context = nullptr;
  ASSERT_EQ(table_.get_cq_event(passive_.channel, &which, &context), 0);
  std::thread acknowledger([&] { table_.ack_cq_events(which, 1); });
  destroy();
  acknowledger.join();
}

TEST_F(Events, TheLimitOfASharedQueueIsToldOnce) {
  connect(4);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(passive_.post_receive(srq_), 0);
  ibv_srq_attr attributes{.max_wr = 0, .max_sge = 0, .srq_limit = 3};
  ASSERT_EQ(table_.modify_srq(srq_, &attributes, IBV_SRQ_LIMIT), 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(active_.post_send(), 0);
    EXPECT_EQ(active_.await_completion().status, IBV_WC_SUCCESS);
  }
  ibv_async_event event{};
  ASSERT_EQ(table_.get_async_event(passive_.id->verbs, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq_);
  table_.ack_async_event(&event);
  EXPECT_FALSE(readable(passive_.id->verbs->async_fd));
}

// Some programs, such as rping, end their event threads like this.
TEST_F(Events, AWaitingThreadCanBeCancelled) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not follow the stack of a cancelled thread";
#endif
  connect();
  pthread_t waiting{};
  const auto wait = [](void* end) -> void* {
    ibv_cq* which = nullptr;
    void* context = nullptr;
    embedded().get_cq_event(static_cast<testing::End*>(end)->channel, &which, &context);
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&waiting, nullptr, wait, &passive_), 0);
  ASSERT_EQ(pthread_cancel(waiting), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(waiting, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
}

}  // namespace
}  // namespace weft::provider
