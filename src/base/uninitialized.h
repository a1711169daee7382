// Room for values that are about to be written, without the cost of clearing it first.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace weft {

// `count` objects of T whose values are indeterminate until they are assigned. For plain structs:
// std::array would run their default initializers, which costs a store for each field.
template <typename T, std::size_t count>
class Uninitialized {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  // The constructor is empty on purpose: `= default` would let a `{}` clear the bytes.
  Uninitialized() {}  // NOLINT(modernize-use-equals-default)
  Uninitialized(const Uninitialized&) = delete;
  Uninitialized& operator=(const Uninitialized&) = delete;

  // Valid as long as this object.
  [[nodiscard]] std::span<T> all() { return {reinterpret_cast<T*>(bytes_), count}; }

 private:
  alignas(T) std::byte bytes_[count * sizeof(T)];
};

}  // namespace weft
