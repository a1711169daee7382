// Work of a queue pair that waits for the program's next call, where it costs no system call of its
// own, or for the progress thread: see Engine::defer().
//
// Not thread safe: the queue pair's lock covers it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "device/engine.h"

namespace weft::device {

class Deferral {
 public:
  // Pollable::on_deferred() of `queue_pair` comes for the work.
  Deferral(Engine& engine, std::weak_ptr<Pollable> queue_pair)
      : engine_(engine), queue_pair_(std::move(queue_pair)) {}

  // Whether the work may wait. Otherwise it is to be done now. `waiting` and `ticks`: as for
  // Engine::defer().
  [[nodiscard]] bool begin(bool waiting = false, std::uint32_t ticks = 1) {
    if (!under_way_) under_way_ = engine_.defer(queue_pair_, waiting, ticks);
    return under_way_;
  }
  // The work is done.
  void end() {
    if (std::exchange(under_way_, false)) engine_.deferral_done();
  }
  [[nodiscard]] bool under_way() const { return under_way_; }
  // Whether it is the program that comes for the work, and not the progress thread.
  [[nodiscard]] bool is_for_program() const {
    return engine_.mode() == ProgressMode::manual || engine_.application_waits();
  }

 private:
  Engine& engine_;
  std::weak_ptr<Pollable> queue_pair_;
  bool under_way_ = false;
};

}  // namespace weft::device
