// A peer of the message protocol whose frames the test writes, on verbs alone.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

#include "message/greeting_wire.h"
#include "message/sides.h"
#include "support/host.h"
#include "weft/verbs.hpp"

namespace weft::message::testing {

class ScriptedPeer {
 public:
  // `meanwhile` drives the other side; it is called repeatedly.
  explicit ScriptedPeer(std::function<void()> meanwhile) : meanwhile_(std::move(meanwhile)) {}

  void connect(std::uint16_t port) {
    id_.emplace(events_);
    id_->resolve_address({test::host(), port}, 10s);
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    id_->resolve_route(10s);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    auto context = id_->context();
    domain_.emplace(context.create_domain());
    queue_.emplace(context.create_completion_queue(32));
    queue_pair_.emplace(id_->create_queue_pair(*domain_, *queue_, *queue_,
                                               {.max_send_wr = 8,
                                                .max_recv_wr = 8,
                                                .max_send_sge = 1,
                                                .max_recv_sge = 1,
                                                .max_inline_data = 0}));
    region_.emplace(domain_->register_memory(std::span(memory_)));
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(queue_pair_->post_receive(region_->slice(10'000 + i * 1000, 1000), 0), 0);
    }
    const auto greeting = detail::MessageGreeting{{4, 512, 1000, true}, {}}.to_bytes();
    id_->connect({.private_data = greeting});
    expect(RDMA_CM_EVENT_ESTABLISHED);
  }
  // Sends one frame of at most 10 000 bytes.
  void send(const std::vector<std::byte>& frame) {
    std::ranges::copy(frame, memory_.begin());
    EXPECT_EQ(queue_pair_->post_send(region_->slice(0, frame.size()), 1), 0);
  }

 private:
  void expect(rdma_cm_event_type type) {
    const Deadline deadline = test_timeout;
    while (!deadline.passed()) {
      if (const auto event = events_.next(1ms)) {
        ASSERT_EQ(event->type(), type);
        return;
      }
      meanwhile_();
    }
    FAIL() << "no event";
  }

  std::function<void()> meanwhile_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(18'000);
  verbs::EventChannel events_;
  std::optional<verbs::Id> id_;
  std::optional<verbs::ProtectionDomain> domain_;
  std::optional<verbs::CompletionQueue> queue_;
  std::optional<verbs::QueuePair> queue_pair_;
  std::optional<verbs::TypedRegion<std::byte>> region_;
};

}  // namespace weft::message::testing
