// Counts the users of an object: fi_close fails with -FI_EBUSY while there are any.
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

// One user, for as long as this exists.
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
