// The capabilities of a device, which its user may have made smaller than they are
// (Settings::adapter), and how many objects of each kind exist.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "faults/adapter.h"

namespace weft::device {

using faults::Capability;

// Thread-safe.
class Adapter {
 public:
  // `strict`: see Settings::strict.
  Adapter(const faults::AdapterLimits& limits, bool strict);

  [[nodiscard]] std::uint64_t most(Capability capability) const { return limits_.most(capability); }
  // Whether a request for this number is within the limit. A refusal is counted.
  [[nodiscard]] bool grants(Capability capability, std::uint64_t wanted) {
    if (wanted <= most(capability)) [[likely]]
      return true;
    refuse(capability);
    return false;
  }
  [[nodiscard]] bool has(Capability capability) { return grants(capability, 1); }
  // Counts an object; false, and a refusal, where the limit is reached.
  [[nodiscard]] bool take(Capability capability);
  void give_back(Capability capability) { --count(capability).objects; }

  [[nodiscard]] std::uint64_t objects(Capability capability) const {
    return counts_[static_cast<std::size_t>(capability)].objects.load();
  }
  [[nodiscard]] std::uint64_t refused(Capability capability) const {
    return counts_[static_cast<std::size_t>(capability)].refused.load();
  }

 private:
  struct Count {
    std::atomic<std::uint64_t> objects{0};
    std::atomic<std::uint64_t> refused{0};
  };

  Count& count(Capability capability) { return counts_[static_cast<std::size_t>(capability)]; }
  void refuse(Capability capability) { ++count(capability).refused; }

  faults::AdapterLimits limits_;
  std::array<Count, faults::capability_count> counts_;
};

// An object of the program that counts against a limit of the adapter, as long as it exists.
class Counted {
 public:
  Counted() = default;
  // Throws std::bad_alloc where the limit is reached: the calls that create objects return ENOMEM
  // then, as if the adapter had no more memory. `adapter` outlives this object.
  Counted(Adapter& adapter, Capability capability);
  // False as a bool where the limit is reached.
  [[nodiscard]] static Counted unless_full(Adapter& adapter, Capability capability) {
    Counted made;
    if (adapter.take(capability)) made.adapter_ = &adapter;
    made.capability_ = capability;
    return made;
  }
  ~Counted() { release(); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  Counted(Counted&& other) noexcept
      : adapter_(std::exchange(other.adapter_, nullptr)), capability_(other.capability_) {}
  Counted& operator=(Counted&& other) noexcept {
    std::swap(adapter_, other.adapter_);
    std::swap(capability_, other.capability_);
    return *this;
  }

  [[nodiscard]] explicit operator bool() const { return adapter_ != nullptr; }
  // The object does not count any more, although it still exists.
  void release() {
    if (adapter_) std::exchange(adapter_, nullptr)->give_back(capability_);
  }

 private:
  Adapter* adapter_ = nullptr;
  Capability capability_{};
};

}  // namespace weft::device
