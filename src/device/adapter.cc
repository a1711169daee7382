#include "device/adapter.h"

#include <algorithm>
#include <new>

#include "device/limits.h"

namespace weft::device {
namespace {

// The list of the user is read without this device; both must agree about what it has.
static_assert(limits::max_queue_pairs == 16384 && limits::max_work_requests == 16384 &&
              limits::max_slices == 32 && limits::max_inline_bytes == 1024);
static_assert(limits::max_completion_queues == 65536 &&
              limits::max_completions == 4 * 1024 * 1024 && limits::max_memory_regions == 1 << 20 &&
              limits::max_region_bytes == std::uint64_t{1} << 47);
static_assert(limits::max_protection_domains == 65536 &&
              limits::max_shared_receive_queues == 16384 &&
              limits::max_address_handles == 1 << 20 && limits::max_read_depth == 127);

}  // namespace

Adapter::Adapter(const faults::AdapterLimits& limits, bool strict) : limits_(limits) {
  if (!strict) return;
  const auto slices = std::min<std::uint64_t>(most(Capability::slices), limits::strict_slices);
  limits_.restrict_to(Capability::slices, slices);
}

// The count is taken first, so that two threads cannot both get the last place.
bool Adapter::take(Capability capability) {
  if (count(capability).objects.fetch_add(1) < most(capability)) return true;
  give_back(capability);
  refuse(capability);
  return false;
}

Counted::Counted(Adapter& adapter, Capability capability)
    : adapter_(&adapter), capability_(capability) {
  if (adapter.take(capability)) return;
  adapter_ = nullptr;
  throw std::bad_alloc();
}

}  // namespace weft::device
