// The patience of the passive side with a peer that was accepted and says nothing.
#pragma once

#include <memory>

#include "cm/identifier.h"
#include "device/engine.h"

namespace weft::cm {

class Identifier::ReadyTimer final : public device::Pollable {
 public:
  explicit ReadyTimer(std::weak_ptr<Identifier> owner) : owner_(std::move(owner)) {}
  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override {
    if (const auto owner = owner_.lock()) owner->on_ready_timeout();
  }

 private:
  std::weak_ptr<Identifier> owner_;
};

}  // namespace weft::cm
