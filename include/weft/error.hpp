// The exception of all calls outside the data path. Its text names the object, what went wrong with
// it, and the next step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "weft/export.hpp"

namespace weft {

// The parts of an Error, for programs. A part is empty where the call does not know it.
struct ErrorDetail {
  std::string object{};     // "queue pair", "completion queue", "address", "connection", …
  std::string attribute{};  // "max_send_wr", or several: "ACCESS_FLAGS, PKEY_INDEX"
  std::optional<std::uint64_t> requested{};
  std::optional<std::uint64_t> limit{};  // of the attribute
  std::string peer{};                    // "192.0.2.1:7174", "host port 7174", or a GID
};

// `code()` has the errno value of the call that failed, in std::generic_category(). `what()` is one
// sentence.
class WEFT_API Error : public std::system_error {
 public:
  // An errno value, and a sentence to which its text is appended.
  Error(int error_number, const std::string& what);
  // The same with what programs can evaluate.
  Error(int error_number, const std::string& what, ErrorDetail detail);

  // The errno value: that of code().
  [[nodiscard]] int error_number() const noexcept { return code().value(); }
  // Valid as long as this object or a copy of it.
  [[nodiscard]] const ErrorDetail& detail() const noexcept;

 private:
  std::shared_ptr<const ErrorDetail> detail_;  // shared, so that copying cannot fail
};

}  // namespace weft
