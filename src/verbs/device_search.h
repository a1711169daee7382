// Opens one device after another until one is suitable, and collects the names for the error
// message.
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
  // Returns nothing if the device cannot be opened, for example because it is broken or this user
  // has no permission: the search continues with the next one.
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

  // Throws the error of a search that found nothing: `error` and `what` with the list of devices.
  // If no device could be opened, the error number of the first failure instead.
  [[noreturn]] void fail(int error, const std::string& what) const {
    if (seen_.empty()) detail::fail(ENODEV, "there is no RDMA device");
    detail::fail(any_opened_ ? error : failure_, what + ": " + seen_);
  }

 private:
  void note(const std::string& device) { seen_ += (seen_.empty() ? "" : ", ") + device; }

  std::string seen_;
  bool any_opened_ = false;
  int failure_ = 0;  // errno of the first device that could not be opened
};

}  // namespace weft::verbs::detail
