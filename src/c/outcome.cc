#include "c/outcome.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace weft::c {
namespace {

// A fixed room, so that reporting an error cannot fail for want of memory.
thread_local std::array<char, 1024> error_text{};

}  // namespace

int fail(int error_number, std::string_view text) noexcept {
  copy_text(text, error_text.data(), error_text.size());
  // The result of a failure is never 0, which would be success.
  return -(error_number > 0 ? error_number : EIO);
}

int copy_text(std::string_view text, char* into, std::size_t room) noexcept {
  if (room > 0) {
    const auto count = std::min(text.size(), room - 1);
    std::memcpy(into, text.data(), count);
    into[count] = '\0';
  }
  // The whole length is returned, as by snprintf(3), so that a program notices a text that was cut.
  return static_cast<int>(text.size());
}

// A release that makes a structure this large makes another one.
void check_size(std::size_t size, const char* type, const char* how_to_set_it) {
  constexpr std::size_t most = 4096;
  if (size >= sizeof size && size <= most) return;
  throw Error(EINVAL, std::string("the size of a ") + type + " is " + std::to_string(size) +
                          ": set it by " + how_to_set_it);
}

}  // namespace weft::c

const char* weft_version(void) {
  return WEFT_VERSION;
}

const char* weft_error_text(void) {
  return weft::c::error_text.data();
}
