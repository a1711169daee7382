// CallerExplains: the C++ layers explain a failure in their Error, so that the device, which
// explains it on standard error for programs in C, has nothing to add.
#pragma once

namespace weft {

// While an object of this exists, failures of this thread's calls are explained by the caller.
class CallerExplains {
 public:
  CallerExplains() { ++depth_; }
  ~CallerExplains() { --depth_; }
  CallerExplains(const CallerExplains&) = delete;
  CallerExplains& operator=(const CallerExplains&) = delete;

  [[nodiscard]] static bool active() { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace weft
