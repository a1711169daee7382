// Objects that the program has imported: ibv_import_device(3).
#pragma once

#include <map>
#include <set>

namespace weft::check {

// Not thread-safe.
class Imports {
 public:
  // The context is one of this process, which the program has now once more.
  void reopened(const void* context) { ++reopened_[context]; }
  // True if the program still has the context after this close.
  bool stays_open(const void* context) {
    const auto found = reopened_.find(context);
    if (found == reopened_.end()) return false;
    if (--found->second == 0) reopened_.erase(found);
    return true;
  }
  // The object stands for one of another process.
  void foreign(const void* object) { foreign_.insert(object); }
  // True if it did; it is not listed any more.
  bool unimport(const void* object) { return foreign_.erase(object) > 0; }

 private:
  std::map<const void*, int> reopened_;
  std::set<const void*> foreign_;
};

}  // namespace weft::check
