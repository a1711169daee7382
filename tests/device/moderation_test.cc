// Completion event moderation, ibv_modify_cq(3): one event for several completions.
#include <poll.h>

#include <cerrno>

#include "device/raw_end.h"

namespace weft::device {
namespace {

class Moderation : public ::testing::Test {
 protected:
  ~Moderation() override {
    pthread_mutex_lock(&queue_.verbs()->mutex);
    queue_.verbs()->comp_events_completed += acknowledged_;
    pthread_mutex_unlock(&queue_.verbs()->mutex);
  }

  void set(std::uint16_t count, std::uint16_t period_us) {
    ibv_modify_cq_attr attributes{IBV_CQ_ATTR_MODERATE, {count, period_us}};
    ASSERT_EQ(ibv_modify_cq(queue_.verbs(), &attributes), 0);
  }

  void complete(ibv_wc_status status = IBV_WC_SUCCESS) {
    Delivery delivery;
    delivery.completion.status = status;
    delivery.slots = &slots_;
    slots_.take();
    ASSERT_TRUE(queue_.push(delivery));
  }

  [[nodiscard]] bool told() {
    pollfd entry{channel_->verbs()->fd, POLLIN, 0};
    if (poll(&entry, 1, 0) != 1) return false;
    take_event();
    return true;
  }

  void take_event() {  // blocks until the event arrives
    CompletionQueue* from = nullptr;
    ASSERT_EQ(channel_->next(from), 0);
    ASSERT_EQ(from, &queue_);
    ++acknowledged_;
  }

  void drain() {
    ibv_wc completion;
    while (queue_.poll(1, &completion) == 1) {
    }
  }

  void arm() { ASSERT_EQ(ibv_req_notify_cq(queue_.verbs(), 0), 0); }

  std::unique_ptr<Device> device_ = make_roce_device();
  Context context_{*device_};
  CompletionChannel::Owned channel_ = CompletionChannel::make(context_.verbs());
  CompletionQueue queue_{context_, 16, nullptr, channel_.get()};
  QueueSlots slots_{16};
  unsigned acknowledged_ = 0;
};

TEST_F(Moderation, AnEventForSoManyCompletions) {
  set(3, 0);
  for (int round = 0; round < 2; ++round) {
    arm();
    complete();
    complete();
    EXPECT_FALSE(told());
    complete();
    EXPECT_TRUE(told());
    complete();
    EXPECT_FALSE(told()) << "nobody armed";
    drain();
  }
}

TEST_F(Moderation, AProgramThatArmsBeforeItPollsIsNotToldTwice) {
  set(3, 0);
  arm();
  for (int i = 0; i < 3; ++i) complete();
  EXPECT_TRUE(told());
  arm();
  EXPECT_FALSE(told());
}

TEST_F(Moderation, TheFirstCompletionWaitsNoLongerThanThePeriod) {
  set(10, 2000);
  for (int round = 0; round < 3; ++round) {
    arm();
    complete();
    take_event();
    drain();
  }
}

TEST_F(Moderation, AFailureIsToldAtOnce) {
  set(10, 0);
  arm();
  complete(IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(told());
}

TEST_F(Moderation, WhatWasHeldBackIsToldWhenTheLimitsChange) {
  set(10, 0);
  arm();
  complete();
  EXPECT_FALSE(told());
  set(0, 0);
  EXPECT_TRUE(told());
  drain();
  arm();
  complete();
  EXPECT_TRUE(told());
}

TEST_F(Moderation, UnknownAttributesAreRefused) {
  ibv_modify_cq_attr attributes{IBV_CQ_ATTR_RESERVED, {}};
  EXPECT_EQ(ibv_modify_cq(queue_.verbs(), &attributes), EINVAL);
}

}  // namespace
}  // namespace weft::device
