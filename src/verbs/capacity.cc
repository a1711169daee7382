#include "verbs/capacity.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <optional>

#include "provider/shared.h"

namespace weft::verbs::detail {
namespace {

struct Limit {
  const char* attribute;
  const char* words;
  std::uint64_t requested;
  std::uint64_t limit;
};

Explanation of(const Limit& exceeded, const char* object, const std::string& device) {
  return {fmt::format(": {} {} are more than the {} that {} has ({})", exceeded.requested,
                      exceeded.words, exceeded.limit, device, exceeded.attribute),
          {.object = object,
           .attribute = exceeded.attribute,
           .requested = exceeded.requested,
           .limit = exceeded.limit}};
}

std::uint64_t positive(int value) {
  return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

// Nothing if the device cannot be asked any more.
std::optional<ibv_device_attr> attributes_of(const Context& context) {
  try {
    return context.query();
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

// The attributes of a device do not include the limit of inline data: that of the embedded device
// is known, for others only the request can be named.
Explanation explain_capacity(const Context& context, const ibv_qp_cap& capacity, int error) {
  const auto device = attributes_of(context);
  if (!device) return {{}, {.object = "queue pair"}};
  const std::array limits{
      Limit{"max_send_wr", "sends", capacity.max_send_wr, positive(device->max_qp_wr)},
      Limit{"max_recv_wr", "receives", capacity.max_recv_wr, positive(device->max_qp_wr)},
      Limit{"max_send_sge", "slices of a send", capacity.max_send_sge, positive(device->max_sge)},
      Limit{"max_recv_sge", "slices of a receive", capacity.max_recv_sge,
            positive(device->max_sge)},
  };
  for (const Limit& limit : limits) {
    if (limit.requested > limit.limit) return of(limit, "queue pair", context.device_name());
  }
  const std::uint64_t bytes = capacity.max_inline_data;
  if (context.backend() == Backend::embedded) {
    const Limit limit{"max_inline_data", "bytes of inline data", bytes,
                      provider::embedded_inline_bytes()};
    if (bytes > limit.limit) return of(limit, "queue pair", context.device_name());
  } else if (bytes > 0) {
    return {fmt::format(": perhaps {} bytes of inline data (max_inline_data) are too many for {}",
                        bytes, context.device_name()),
            {.object = "queue pair", .attribute = "max_inline_data", .requested = bytes}};
  }
  if (error == ENOMEM) {
    return {
        fmt::format(": all of the {} queue pairs that {} has (max_qp) are in use, or its memory",
                    device->max_qp, context.device_name()),
        {.object = "queue pair", .attribute = "max_qp", .limit = positive(device->max_qp)}};
  }
  return {{}, {.object = "queue pair"}};
}

Explanation explain_entries(const Context& context, int entries, int vector) {
  if (vector < 0 || vector >= context.completion_vectors()) {
    return {fmt::format(": the completion vectors of {} are 0 to {}, and not {}",
                        context.device_name(), context.completion_vectors() - 1, vector),
            {.object = "completion queue",
             .attribute = "comp_vector",
             .requested = positive(vector),
             .limit = positive(context.completion_vectors() - 1)}};
  }
  if (entries < 1) {
    return {": it needs one entry at least",
            {.object = "completion queue", .attribute = "cqe", .limit = 1}};
  }
  const auto device = attributes_of(context);
  const Limit limit{"max_cqe", "entries", positive(entries),
                    device ? positive(device->max_cqe) : 0};
  if (!device || limit.requested <= limit.limit) return {{}, {.object = "completion queue"}};
  return of(limit, "completion queue", context.device_name());
}

Explanation explain_region(const Context& context, std::uint64_t bytes, int error) {
  if (error == EFAULT) {
    return {
        ": a part of the memory does not exist, or may not be written: register const memory "
        "read-only",
        {.object = "memory region", .attribute = "address", .requested = bytes}};
  }
  const auto device = attributes_of(context);
  const Limit limit{"max_mr_size", "bytes", bytes, device ? device->max_mr_size : 0};
  if (!device || limit.requested <= limit.limit) {
    return {{}, {.object = "memory region", .requested = bytes}};
  }
  return of(limit, "memory region", context.device_name());
}

}  // namespace weft::verbs::detail
