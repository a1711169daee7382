// The conditions that coroutines can wait for on a stream.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "stream/endpoint.h"
#include "stream/listener_core.h"
#include "verbs/wait_queue.h"
#include "verbs/waiter.h"

namespace weft::stream::detail {

using verbs::detail::Condition;
using verbs::detail::Descriptors;
using verbs::detail::EventFlag;

// The member of Stream::Readiness that a condition waits for.
using ReadinessFlag = bool Stream::Readiness::*;

// Waits until a stream is ready. Keeps the endpoint, so that the wait ends in order where the
// Stream is closed or destroyed first. It watches the stream only once it has to wait.
class ReadinessCondition : public Condition {
 public:
  ReadinessCondition(std::shared_ptr<Endpoint> endpoint, ReadinessFlag wanted)
      : endpoint_(std::move(endpoint)), wanted_(wanted) {}
  ~ReadinessCondition() override;

  [[nodiscard]] bool holds() override;
  [[nodiscard]] Descriptors descriptors() const override { return {watch_->flag.fd()}; }

 protected:
  // Does what can be done without waiting; true if there is nothing to wait for.
  [[nodiscard]] virtual bool attempt() = 0;
  [[nodiscard]] Endpoint& endpoint() const { return *endpoint_; }

 private:
  // A class of its own, because the stream may call it until the destructor below has ended the
  // watch: what derives from the condition is destroyed by then.
  struct Watch final : Stream::Watcher {
    explicit Watch(ReadinessFlag wanted_flag) : wanted(wanted_flag) {}
    void changed(const Stream::Readiness& now) noexcept override {
      if (now.*wanted) flag.raise();
    }
    [[nodiscard]] bool needs_every_arrival() const noexcept override { return false; }

    ReadinessFlag wanted;
    EventFlag flag;
  };

  std::shared_ptr<Endpoint> endpoint_;
  ReadinessFlag wanted_;
  std::optional<Watch> watch_;  // exists while this watches
};

// Connecting has ended, in whatever way.
class SettledCondition final : public ReadinessCondition {
 public:
  explicit SettledCondition(std::shared_ptr<Endpoint> endpoint)
      : ReadinessCondition(std::move(endpoint), &Stream::Readiness::settled) {}

 private:
  [[nodiscard]] bool attempt() override { return endpoint().state() != State::connecting; }
};

// A transfer, which takes its turn among the coroutines of its direction.
class TransferCondition : public ReadinessCondition {
 public:
  TransferCondition(std::shared_ptr<Endpoint> endpoint, ReadinessFlag wanted,
                    verbs::detail::WaitQueue& turns)
      : ReadinessCondition(std::move(endpoint), wanted), entry_(turns) {}

  [[nodiscard]] bool holds() override;
  [[nodiscard]] Descriptors descriptors() const override;

 private:
  verbs::detail::WaitQueueEntry entry_;
  bool has_turn_ = false;
};

class SendCondition final : public TransferCondition {
 public:
  SendCondition(const std::shared_ptr<Endpoint>& endpoint, std::span<const std::byte> bytes)
      : TransferCondition(endpoint, &Stream::Readiness::writable, endpoint->send_turns()),
        left_(bytes) {}
  [[nodiscard]] Transfer take() const { return outcome_; }

 private:
  [[nodiscard]] bool attempt() override;
  std::span<const std::byte> left_;
  Transfer outcome_{TransferStatus::would_block, 0, 0};
};

class ReceiveCondition final : public TransferCondition {
 public:
  ReceiveCondition(const std::shared_ptr<Endpoint>& endpoint, std::span<std::byte> into,
                   bool wait_all)
      : TransferCondition(endpoint, &Stream::Readiness::readable, endpoint->receive_turns()),
        left_(into),
        wait_all_(wait_all) {}
  [[nodiscard]] Transfer take() const { return outcome_; }

 private:
  [[nodiscard]] bool attempt() override;
  std::span<std::byte> left_;
  bool wait_all_;
  Transfer outcome_{TransferStatus::would_block, 0, 0};
};

class ViewCondition final : public TransferCondition {
 public:
  explicit ViewCondition(const std::shared_ptr<Endpoint>& endpoint)
      : TransferCondition(endpoint, &Stream::Readiness::readable, endpoint->receive_turns()) {}
  [[nodiscard]] View take() const { return view_; }

 private:
  [[nodiscard]] bool attempt() override;
  View view_{{TransferStatus::would_block, 0, 0}, {}};
};

// The stream could be closed without waiting. No event reports that, so a timer asks for it again,
// with increasing intervals.
class ClosedCondition final : public Condition {
 public:
  explicit ClosedCondition(std::shared_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}
  [[nodiscard]] bool holds() override;
  [[nodiscard]] Descriptors descriptors() const override { return {timer_.fd()}; }

 private:
  std::shared_ptr<Endpoint> endpoint_;
  verbs::detail::Timer timer_;
  std::chrono::microseconds interval_{50};
};

// A request of a listener that may become a stream.
class RequestCondition final : public Condition {
 public:
  explicit RequestCondition(std::shared_ptr<ListenerCore> core) : core_(std::move(core)) {}
  [[nodiscard]] bool holds() override {
    core_->ensure_listening();
    found_ = core_->take();
    return found_.has_value();
  }
  [[nodiscard]] Descriptors descriptors() const override { return {core_->fd()}; }
  [[nodiscard]] std::optional<Request> take() { return std::move(found_); }

 private:
  std::shared_ptr<ListenerCore> core_;
  std::optional<Request> found_;
};

// A stream of a listener that is connected.
class AcceptedCondition final : public Condition {
 public:
  AcceptedCondition(std::shared_ptr<ListenerCore> core, std::span<const std::byte> private_data)
      : core_(std::move(core)), private_data_(private_data) {}
  [[nodiscard]] bool holds() override {
    found_ = core_->accept(private_data_);
    return found_.has_value();
  }
  [[nodiscard]] Descriptors descriptors() const override { return core_->accept_descriptors(); }
  // Only once it holds.
  [[nodiscard]] Stream take() { return std::move(*found_); }

 private:
  std::shared_ptr<ListenerCore> core_;
  std::span<const std::byte> private_data_;
  std::optional<Stream> found_;
};

}  // namespace weft::stream::detail
