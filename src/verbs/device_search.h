// Opens device after device until one will do, and remembers what there was.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "verbs/failure.h"
#include "weft/verbs/context.hpp"
#include "weft/verbs/device.hpp"

namespace weft::verbs::detail {

class DeviceSearch {
 public:
  // Empty where it cannot be opened, as adapters that are broken or not ours: another may do.
  std::optional<Context> open(const Device& device) {
    return open(device.name(), [&] { return device.open(); });
  }
  template <typename Opener>
  std::optional<Context> open(const std::string& name, const Opener& opener) {
    try {
      std::optional<Context> context = opener();
      any_opened_ = true;
      note(name);
      return context;
    } catch (const Error& error) {
      if (failure_ == 0) failure_ = error.error_number();
      note(fmt::format("{} ({})", name, error.what()));
      return std::nullopt;
    }
  }

  // Where none has been found: `error` and `what`, and the devices; where not one could be opened,
  // the reason of that.
  [[noreturn]] void fail(int error, const std::string& what) const {
    if (seen_.empty()) detail::fail(ENODEV, "there is no RDMA device");
    detail::fail(any_opened_ ? error : failure_, what + ": " + seen_);
  }

 private:
  void note(const std::string& device) { seen_ += (seen_.empty() ? "" : ", ") + device; }

  std::string seen_;
  bool any_opened_ = false;
  int failure_ = 0;  // errno of the first that could not be opened
};

}  // namespace weft::verbs::detail
