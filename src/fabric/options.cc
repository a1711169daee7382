#include "fabric/options.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace weft::fabric {
namespace {

// The types are those of libfabric's rstream: buffer sizes have 32 bits, queue sizes 16.
struct Option {
  int name;
  std::uint32_t stream::Options::*member;
  std::size_t bytes;
};
constexpr Option known_options[] = {
    {FI_OPT_SEND_BUF_SIZE, &stream::Options::send_buffer_bytes, sizeof(std::uint32_t)},
    {FI_OPT_RECV_BUF_SIZE, &stream::Options::receive_buffer_bytes, sizeof(std::uint32_t)},
    {FI_OPT_TX_SIZE, &stream::Options::send_queue, sizeof(std::uint16_t)},
    {FI_OPT_RX_SIZE, &stream::Options::receive_queue, sizeof(std::uint16_t)},
};

// Null for an unknown level or name.
const Option* find(int level, int name) {
  if (level != FI_OPT_ENDPOINT) return nullptr;
  const auto* found = std::ranges::find(known_options, name, &Option::name);
  return found == std::end(known_options) ? nullptr : found;
}

// Sets `*room` to the size of the value in any case.
template <typename T>
int give(const T& value, void* to, std::size_t* room) {
  if (!to || !room) return -FI_EINVAL;
  const bool fits = *room >= sizeof value;
  *room = sizeof value;
  if (!fits) return -FI_ETOOSMALL;
  std::memcpy(to, &value, sizeof value);
  return 0;
}

}  // namespace

// stream::check() throws Error(EINVAL) for a value out of range, and `options` stays as it was.
int set_option(stream::Options& options, int level, int name, const void* value,
               std::size_t bytes) {
  const Option* option = find(level, name);
  if (!option) return -FI_ENOPROTOOPT;
  if (!value || bytes != option->bytes) return -FI_EINVAL;
  stream::Options changed = options;
  if (bytes == sizeof(std::uint16_t)) {
    std::uint16_t narrow = 0;
    std::memcpy(&narrow, value, sizeof narrow);
    changed.*option->member = narrow;
  } else {
    std::memcpy(&(changed.*option->member), value, sizeof(std::uint32_t));
    changed.growth_bytes = 0;  // a size that was set is kept
  }
  stream::check(changed);
  options = changed;
  return 0;
}

int get_option(const stream::Options& options, int level, int name, void* value,
               std::size_t* bytes) {
  if (level == FI_OPT_ENDPOINT && name == FI_OPT_CM_DATA_SIZE) {
    return give_connection_data_size(value, bytes);
  }
  const Option* option = find(level, name);
  if (!option) return -FI_ENOPROTOOPT;
  // A queue size is at most stream::max_queue, which fits in 16 bits.
  const std::uint32_t known = options.*option->member;
  if (option->bytes == sizeof known) return give(known, value, bytes);
  return give(static_cast<std::uint16_t>(known), value, bytes);
}

int give_connection_data_size(void* value, std::size_t* bytes) {
  return give(stream::max_private_data_bytes(), value, bytes);
}

std::span<const std::byte> connection_data(const void* data, std::size_t bytes) {
  if (!data) return {};
  return {static_cast<const std::byte*>(data), std::min(bytes, stream::max_private_data_bytes())};
}

}  // namespace weft::fabric
