#include "weft/stream/options.hpp"

#include <fmt/format.h>

#include "stream/greeting_wire.h"
#include "stream/private_data.h"

namespace weft::stream {
namespace {

void check_range(const char* name, std::uint64_t value, std::uint64_t min, std::uint64_t max) {
  if (value >= min && value <= max) return;
  throw Error(EINVAL, fmt::format("{} {}: must be from {} to {}", name, value, min, max),
              {.object = "stream options",
               .attribute = name,
               .requested = value,
               .limit = value < min ? min : max});
}

[[noreturn]] void refuse(const char* name, const char* reason) {
  throw Error(EINVAL, fmt::format("{}: {}", name, reason),
              {.object = "stream options", .attribute = name});
}

}  // namespace

void check(const Options& options) {
  check_range("send_buffer_bytes", options.send_buffer_bytes, 1, max_buffer_bytes);
  check_range("receive_buffer_bytes", options.receive_buffer_bytes, 1, max_buffer_bytes);
  if (options.growth_bytes) check_range("growth_bytes", *options.growth_bytes, 0, max_buffer_bytes);
  check_range("send_queue", options.send_queue, min_queue, max_queue);
  check_range("receive_queue", options.receive_queue, min_queue, max_queue);
  // The greeting has one byte for the number of rows.
  check_range("mapped_buffers", options.mapped_buffers, 0, 255);
  if (options.spin.count() < 0) refuse("spin", "must not be negative");
  if (options.linger.count() < 0) refuse("linger", "must not be negative");
  if (options.answer_timeout && options.answer_timeout->count() <= 0) {
    refuse("answer_timeout", "must be above 0");
  }
  if (options.refused_time && options.refused_time->count() < 0) {
    refuse("refused_time", "must not be negative");
  }
  if (!options.keepalive) return;
  if (options.keepalive->idle.count() <= 0 || options.keepalive->interval.count() <= 0 ||
      options.keepalive->probes == 0) {
    refuse("keepalive", "idle, interval and probes must be above 0");
  }
}

std::size_t max_private_data_bytes(verbs::Backend backend) {
  // rdma_connect(3) has the least room over InfiniBand; MPA has more (RFC 6581 §4). The greeting
  // takes its part.
  constexpr std::size_t infiniband = 56;
  constexpr std::size_t embedded = 252;
  return (backend == verbs::Backend::embedded ? embedded : infiniband) -
         detail::StreamGreeting::fixed_bytes;
}

void detail::check_private_data(std::size_t bytes, verbs::Backend backend) {
  const std::size_t max = max_private_data_bytes(backend);
  if (bytes <= max) return;
  throw Error(EINVAL, fmt::format("private data may have {} bytes, and not {}", max, bytes),
              {.object = "stream", .attribute = "private_data", .requested = bytes, .limit = max});
}

Rejected::Rejected(int error_number, const std::string& what, std::vector<std::byte> private_data,
                   ErrorDetail detail)
    : Error(error_number, what, std::move(detail)), private_data_(std::move(private_data)) {}

}  // namespace weft::stream
