#include "weft/verbs/text.hpp"

#include <fmt/format.h>

#include "verbs/waiting.h"
#include "weft/verbs/completion.hpp"
#include "weft/verbs/context.hpp"
#include "weft/verbs/device.hpp"
#include "weft/verbs/memory.hpp"
#include "weft/verbs/queue_pair.hpp"

namespace weft::verbs {
namespace {

// The names of the man page without the prefix IBV_QPT_.
std::string_view type_name(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return "RC";
    case IBV_QPT_UC:
      return "UC";
    case IBV_QPT_UD:
      return "UD";
    default:
      return "of another type";
  }
}

}  // namespace

std::string to_string(const Device& device) {
  return fmt::format("{} ({})", device.name(), to_string(device.backend()));
}

std::string to_string(const Context& context) {
  return fmt::format("{} ({})", context.device_name(), to_string(context.backend()));
}

std::string to_string(const QueuePair& queue_pair) {
  return fmt::format("queue pair {:#x} ({}, {})", queue_pair.number(),
                     type_name(queue_pair.raw()->qp_type), detail::state_name(queue_pair.state()));
}

std::string to_string(const MemoryRegion& region) {
  return fmt::format("{} bytes at {:#x}, lkey {:#x}, rkey {:#x}", region.size_bytes(),
                     region.remote().address(), region.lkey(), region.rkey());
}

std::string to_string(const Completion& completion) {
  return fmt::format("request {} of queue pair {:#x}: {}", completion.id(),
                     completion.queue_pair_number(), completion.status_name());
}

}  // namespace weft::verbs
