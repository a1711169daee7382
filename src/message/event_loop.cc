// The handle of an event loop: it forwards to LoopCore.
#include "weft/message/event_loop.hpp"

#include "message/link.h"
#include "message/loop_core.h"

namespace weft::message {

EventLoop::EventLoop(const Limits& limits, verbs::Backend backend)
    : core_(std::make_shared<detail::LoopCore>(limits, verbs::EventChannel(backend), backend)) {}
EventLoop::EventLoop(const Limits& limits, const verbs::Context& device)
    : core_(std::make_shared<detail::LoopCore>(limits, verbs::EventChannel(device),
                                               device.backend())) {}

EventLoop::EventLoop(EventLoop&&) noexcept = default;

// The old loop is shut down, as by its destructor.
EventLoop& EventLoop::operator=(EventLoop&& other) noexcept {
  if (this != &other) {
    if (core_) core_->shut_down();
    core_ = std::move(other.core_);
  }
  return *this;
}

EventLoop::~EventLoop() {
  if (core_) core_->shut_down();
}

std::size_t EventLoop::step(Deadline deadline) {
  const auto core = core_.get();  // a callback may destroy this object
  return core->step(deadline);
}

void EventLoop::run() {
  const auto core = core_.get();
  core->run();
}

// The stop may come from any thread; LoopCore::stop() wakes the loop.
void EventLoop::run(std::stop_token stop) {
  const auto core = core_.get();
  const std::stop_callback on_stop(std::move(stop), [&core] { core->stop(); });
  core->run();
}

int EventLoop::fd() const {
  return core_->fd();
}

void EventLoop::wake() {
  core_->wake();
}

void EventLoop::stop() {
  core_->stop();
}

bool EventLoop::is_inside() const {
  return core_->is_inside();
}

void EventLoop::post(std::function<void()> work) {
  core_->post(std::move(work));
}

EventLoop::TimerId EventLoop::after(std::chrono::nanoseconds delay, std::function<void()> work) {
  core_->check_thread();
  return core_->after(delay, std::move(work));
}

bool EventLoop::cancel(TimerId timer) {
  core_->check_thread();
  return core_->cancel(timer);
}

Connection EventLoop::connect(const Address& peer, Handlers handlers, const Options& options) {
  core_->check_thread();
  return Connection(core_->connect(peer, std::move(handlers), options));
}

Listener EventLoop::listen(const Address& address, RequestHandler on_request, int backlog) {
  core_->check_thread();
  std::uint16_t port = 0;
  const std::uint64_t number = core_->listen(address, std::move(on_request), backlog, port);
  return {core_.get(), number, port};
}

const Limits& EventLoop::limits() const {
  return core_->limits();
}

std::size_t EventLoop::connections() const {
  core_->check_thread();
  return core_->connections();
}

}  // namespace weft::message
