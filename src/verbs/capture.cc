#include "weft/verbs/capture.hpp"

#include <mutex>
#include <stdexcept>
#include <utility>

#include "verbs/failure.h"
#include "verbs/state.h"
#include "weft/verbs/context.hpp"
#include "weft/verbs/device.hpp"

namespace weft::verbs {

struct detail::CaptureState {
  std::shared_ptr<ContextState> context;
  std::shared_ptr<void> running;
  std::string path;

  CaptureState(std::shared_ptr<ContextState> of, provider::CaptureTarget target)
      : context(std::move(of)) {
    const std::string to = target.function ? "a function" : target.path;
    std::string why;
    const int failed = context->table.start_capture(context->raw, target, running, why);
    if (failed) fail(failed, "cannot capture " + context->device_name() + " to " + to + ": " + why);
    path = std::move(target.path);
  }
  ~CaptureState() { context->table.stop_capture(context->raw, running); }
  CaptureState(const CaptureState&) = delete;
  CaptureState& operator=(const CaptureState&) = delete;
};

Capture::Capture(std::shared_ptr<detail::CaptureState> state) : state_(std::move(state)) {}

void Capture::stop() {
  const int failed = state_->context->table.stop_capture(state_->context->raw, state_->running);
  if (failed) {
    detail::fail(failed, "a capture cannot be stopped by its own function; throw there instead");
  }
}

CaptureStatus Capture::status() const {
  provider::CaptureCounts counts;
  state_->context->table.read_capture(state_->context->raw, state_->running, counts);
  return {.running = counts.running,
          .packets = counts.packets,
          .packets_lost = counts.packets_lost,
          .unseen_connections = counts.unseen_connections};
}

const std::string& Capture::path() const {
  return state_->path;
}

namespace {

// Any context of the device that the process shares.
Context shared_device() {
  return open_device({}, Backend::embedded);
}

}  // namespace

Capture start_capture(const Context& context, const std::string& path) {
  return Capture(std::make_shared<detail::CaptureState>(
      context.state_, provider::CaptureTarget{.path = path, .function = {}}));
}

Capture start_capture(const Context& context, CaptureFunction function) {
  if (!function) throw std::invalid_argument("start_capture: the function is empty");
  return Capture(std::make_shared<detail::CaptureState>(
      context.state_, provider::CaptureTarget{.path = {}, .function = std::move(function)}));
}

Capture start_capture(const std::string& path) {
  return start_capture(shared_device(), path);
}

Capture start_capture(CaptureFunction function) {
  return start_capture(shared_device(), std::move(function));
}

}  // namespace weft::verbs
