// What a call on an empty handle throws: weft/handle.hpp.
#include <stdexcept>
#include <string>

#include "weft/handle.hpp"

namespace weft::detail {

void throw_empty(const char* type) {
  throw std::logic_error("this " + std::string(type) +
                         " is empty: it was moved from, or a call has taken its object");
}

}  // namespace weft::detail
