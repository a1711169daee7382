// How the handles of queues keep their C object, for posts and polls without a check.
#pragma once

#include <infiniband/verbs.h>

#include <utility>

#include "weft/export.hpp"

namespace weft::verbs::detail {

// The number without its sign.
[[nodiscard]] WEFT_API int without_sign(int negative) noexcept;

// The errno of a call of the data path. Some providers, such as that of the kernel's siw, return it
// with a negative sign, where ibv_post_send(3) promises a positive one. A function of its own for
// these keeps the other calls as short as in C.
[[nodiscard]] inline int errno_of(int result) {
  if (result < 0) [[unlikely]]
    return without_sign(result);
  return result;
}

// Objects for empty handles (weft/handle.hpp): posting to them and polling them throws
// std::logic_error. They exist until the process ends.
[[nodiscard]] WEFT_API ibv_qp* empty_object(const ibv_qp* moved) noexcept;
[[nodiscard]] WEFT_API ibv_cq* empty_object(const ibv_cq* moved) noexcept;
[[nodiscard]] WEFT_API ibv_srq* empty_object(const ibv_srq* moved) noexcept;

// A pointer that may always be dereferenced, so that a post or a poll needs no check: moving from
// it leaves it at the empty object. Only the inline functions of verbs.h may get that object, as
// it has no device; other calls must check the handle first.
template <typename Object>
class DataPathPointer {
 public:
  explicit DataPathPointer(Object* object) : object_(object) {}
  DataPathPointer(DataPathPointer&& other) noexcept
      : object_(std::exchange(other.object_, empty_object(other.object_))) {}
  DataPathPointer& operator=(DataPathPointer&& other) noexcept {
    if (this != &other) object_ = std::exchange(other.object_, empty_object(other.object_));
    return *this;
  }
  ~DataPathPointer() = default;

  [[nodiscard]] Object* get() const { return object_; }

 private:
  Object* object_;
};

}  // namespace weft::verbs::detail
