// Who still needs an object: fi_close answers -FI_EBUSY until nobody does.
#pragma once

#include <atomic>

namespace weft::fabric {

class Users {
 public:
  [[nodiscard]] bool any() const { return count_ > 0; }

 private:
  friend class Use;
  std::atomic<int> count_{0};
};

// Counts as a user for as long as it lives.
class Use {
 public:
  explicit Use(Users& users) : users_(users) { ++users_.count_; }
  ~Use() { --users_.count_; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  Users& users_;
};

}  // namespace weft::fabric
