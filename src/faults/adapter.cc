#include "faults/adapter.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "faults/assignments.h"
#include "faults/numbers.h"

namespace weft::faults {
namespace {

constexpr std::uint64_t one = 1;

// The largest value of each is what the device has without restrictions: AdapterLimits begins with
// these, and restricted() compares with them.
constexpr std::array<CapabilityName, capability_count> names{
    CapabilityName{"max_qp", Capability::queue_pairs, 0, 16384,
                   "Queue pairs that exist at a time; one more is ENOMEM."},
    CapabilityName{"max_qp_wr", Capability::work_requests, 1, 16384,
                   "Work requests of one queue; ibv_create_qp with more is EINVAL."},
    CapabilityName{"max_sge", Capability::slices, 1, 32,
                   "Pieces of memory of one request, also of shared receive queues; more is "
                   "EINVAL."},
    CapabilityName{"max_inline", Capability::inline_bytes, 0, 1024,
                   "Bytes of inline data of one request (no field of ibv_device_attr); "
                   "ibv_create_qp with more is EINVAL."},
    CapabilityName{"max_cq", Capability::completion_queues, 1, 65536,
                   "Completion queues that exist at a time; one more is ENOMEM."},
    CapabilityName{"max_cqe", Capability::completions, 1, 4 * 1024 * 1024,
                   "Entries of one completion queue; more is EINVAL."},
    CapabilityName{"max_mr", Capability::regions, 1, one << 20,
                   "Memory regions that exist at a time; one more is ENOMEM."},
    CapabilityName{"max_mr_size", Capability::region_bytes, 1, one << 47,
                   "Bytes of one memory region, such as 64MiB; more is EINVAL."},
    CapabilityName{"max_mw", Capability::windows, 0, one << 20,
                   "Memory windows that exist at a time; one more is ENOMEM."},
    CapabilityName{"max_pd", Capability::domains, 1, 65536,
                   "Protection domains that exist at a time; one more is ENOMEM."},
    CapabilityName{"max_srq", Capability::shared_receive_queues, 0, 16384,
                   "Shared receive queues that exist at a time; one more is ENOMEM."},
    CapabilityName{"max_srq_wr", Capability::shared_receives, 1, 16384,
                   "Receives of one shared receive queue; more is EINVAL."},
    CapabilityName{"max_ah", Capability::address_handles, 0, one << 20,
                   "Address handles that exist at a time; one more is ENOMEM."},
    CapabilityName{"max_qp_rd_atom", Capability::read_depth, 0, 127,
                   "Reads and atomics of one queue pair at a time, in each direction; more is "
                   "EINVAL."},
    CapabilityName{"atomics", Capability::atomics, 0, 1,
                   "0: ibv_device_attr shows IBV_ATOMIC_NONE, posting an atomic is EOPNOTSUPP, "
                   "and those of peers are refused."},
    CapabilityName{"immediates", Capability::immediates, 0, 1,
                   "0: posting a Send or Write with immediate is EOPNOTSUPP, as on iWARP "
                   "adapters."},
};

// AdapterLimits finds a limit by the number of its Capability, so the table has to have that order.
constexpr bool in_order() {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].capability != static_cast<Capability>(i)) return false;
  }
  return true;
}
static_assert(in_order());

// Only the size of a region may have a unit; the other limits are counts or small sizes.
bool read_value(const CapabilityName& name, std::string_view text, std::uint64_t& value) {
  const bool sized = name.capability == Capability::region_bytes;
  if (!read_count(text, 0, value) && !(sized && read_amount(text, value))) return false;
  return value >= name.least && value <= name.most;
}

std::optional<Mistake> apply(const Assignment& given, AdapterLimits& limits) {
  const auto name = std::ranges::find(names, given.name.text, &CapabilityName::name);
  if (name == names.end()) {
    return Mistake{"must be one of " + listed_names(names), given.name.offset};
  }
  std::uint64_t value = 0;
  if (!read_value(*name, given.value.text, value)) {
    return Mistake{std::string(name->name) + "= must be a number from " +
                       std::to_string(name->least) + " to " + std::to_string(name->most) +
                       ", which this device has",
                   given.value.offset};
  }
  limits.restrict_to(name->capability, value);
  return std::nullopt;
}

}  // namespace

std::span<const CapabilityName> capability_names() {
  return names;
}

AdapterLimits::AdapterLimits() {
  std::ranges::transform(names, most_.begin(), &CapabilityName::most);
}

bool AdapterLimits::restricted() const {
  return !std::ranges::equal(most_, names, {}, {}, &CapabilityName::most);
}

// The first mistake ends the reading, because the message has one caret.
Result<AdapterLimits, std::string> parse_adapter(std::string_view text) {
  std::vector<Assignment> given;
  if (const auto mistake = read_assignments(text, given)) return explain(*mistake, text);
  AdapterLimits limits;
  for (const Assignment& each : given) {
    if (const auto mistake = apply(each, limits)) return explain(*mistake, text);
  }
  return limits;
}

}  // namespace weft::faults
