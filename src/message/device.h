// Device: what all connections of an event loop share that use the same device.
#pragma once

#include <memory>

#include "message/pool.h"
#include "weft/verbs.hpp"

namespace weft::message::detail {

// Created when the first connection needs it.
struct Device {
  verbs::Context context;
  verbs::ProtectionDomain domain;
  verbs::CompletionChannel channel;
  std::shared_ptr<Pool> pool;
};

}  // namespace weft::message::detail
