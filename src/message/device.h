// Device: what all connections of an event loop share that use the same device.
#pragma once

#include <memory>

#include "message/pool.h"
#include "message/warm_blocks.h"
#include "provider/table.h"
#include "weft/verbs.hpp"

namespace weft::message::detail {

// Created when the first connection needs it.
struct Device {
  verbs::Context context;
  verbs::ProtectionDomain domain;
  verbs::CompletionChannel channel;
  std::shared_ptr<Pool> pool;
  WarmBlocks warm;
  // Null: the device places each message in the memory of its receive.
  decltype(provider::Table::poll_cq_into) poll_into = nullptr;
};

}  // namespace weft::message::detail
