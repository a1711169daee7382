// The rule of empty handles, for each class of Weft that refers to an object of the library: a
// region, a queue pair, a connection, a listener, a stream, an event loop.
//
// A handle is empty after it was moved from, and after a call has taken its object out of it:
// Request::accept(), Prepared::connect(), PreparedQueuePair::handshake(). An empty handle may be
// destroyed, and another handle may be assigned to it. All other calls throw std::logic_error, and
// its text names the class. Exceptions are stated where a class has an empty state of its own, as
// a message::Buffer, or an `explicit operator bool`.
//
// The rule costs nothing where requests are posted and completions polled: there an empty handle
// refers to an object whose device functions throw.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "weft/export.hpp"

namespace weft::detail {

// Throws std::logic_error, which names the class. It is in the library, so that a check is one
// comparison and a branch that is not taken, and that headers can be used with -fno-exceptions.
[[noreturn, gnu::cold]] WEFT_API void throw_empty(const char* type);

// The name of a class as a template argument.
template <std::size_t size>
struct TypeName {
  consteval TypeName(const char (&name)[size]) {  // NOLINT(google-explicit-constructor)
    for (std::size_t i = 0; i < size; ++i) text[i] = name[i];
  }
  char text[size] = {};
};

// A pointer member of a handle. It is null after it was moved from, also if `Pointer` is a plain
// pointer. Each use of a null pointer throws std::logic_error with the name of the handle's class.
template <typename Pointer, TypeName name>
class Held {
 public:
  Held() = default;
  Held(Pointer pointer) : pointer_(std::move(pointer)) {}  // NOLINT(google-explicit-constructor)
  Held(const Held&) = default;
  Held& operator=(const Held&) = default;
  Held(Held&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  Held& operator=(Held&& other) noexcept {
    if (this != &other) pointer_ = std::exchange(other.pointer_, nullptr);
    return *this;
  }
  ~Held() = default;

  [[nodiscard]] explicit operator bool() const { return pointer_ != nullptr; }
  [[nodiscard]] const Pointer& get() const {
    if (!pointer_) [[unlikely]] {
      throw_empty(name.text);
    }
    return pointer_;
  }
  // Leaves the member empty.
  [[nodiscard]] Pointer take() {
    static_cast<void>(get());
    return std::exchange(pointer_, nullptr);
  }
  operator const Pointer&() const { return get(); }  // NOLINT(google-explicit-constructor)
  auto* operator->() const { return std::to_address(get()); }
  auto& operator*() const { return *get(); }

 private:
  Pointer pointer_ = nullptr;
};

}  // namespace weft::detail
