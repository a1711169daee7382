// Two connected queue pairs whose completions go to Operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weft/verbs.hpp"

namespace weft::verbs::testing {

// Memory whose release can be seen: `alive` expires when nothing holds it any more.
struct Watched {
  std::vector<std::byte>* bytes;  // valid while `alive` has not expired
  std::weak_ptr<std::vector<std::byte>> alive;
};

struct OperationPair {
  // `entries`: of the completion queue of each side. `requests`: of each direction of a queue pair.
  explicit OperationPair(int entries = 64, std::uint32_t requests = 16);

  // A slice of `count` bytes of its own region, which only the result keeps.
  [[nodiscard]] KeptSlice make(std::size_t count, Access access = Access::all) const;
  [[nodiscard]] KeptSlice make(std::size_t count, Watched& watched) const;

  Context context;
  ProtectionDomain domain;
  std::optional<Operations> a_operations;
  std::optional<Operations> b_operations;
  std::optional<QueuePair> a;
  std::optional<QueuePair> b;
};

// The bytes of a slice that is still kept.
[[nodiscard]] std::byte* bytes_of(const KeptSlice& slice);

}  // namespace weft::verbs::testing
