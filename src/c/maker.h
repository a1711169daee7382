// Which process has made an object of the C interface.
#pragma once

#include <cstdint>

#include "base/fork_mark.h"

namespace weft::c {

// Belongs to an object that threads of a parent may have been changing at its fork(2). In the child
// the functions that free such an object leave it where it is.
class Maker {
 public:
  // Whether another process has made the object, from which this one descends.
  [[nodiscard]] bool is_parent() const { return mark_ != fork_mark(); }

 private:
  std::uint64_t mark_ = fork_mark();
};

}  // namespace weft::c
