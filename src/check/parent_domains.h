// Which protection domains are one: ibv_alloc_parent_domain(3).
#pragma once

#include <infiniband/verbs.h>

#include <unordered_map>

namespace weft::check {

// Not thread-safe.
class ParentDomains {
 public:
  // The parent domain has the protection of the other one.
  void add(const ibv_pd* parent, const ibv_pd* domain) { origins_[parent] = origin_of(domain); }
  void remove(const ibv_pd* domain) { origins_.erase(domain); }
  // Whether objects of both work together.
  [[nodiscard]] bool are_one(const ibv_pd* one, const ibv_pd* other) const {
    return origin_of(one) == origin_of(other);
  }

 private:
  // A domain that is no parent domain is its own origin.
  [[nodiscard]] const ibv_pd* origin_of(const ibv_pd* domain) const {
    const auto found = origins_.find(domain);
    return found == origins_.end() ? domain : found->second;
  }

  std::unordered_map<const ibv_pd*, const ibv_pd*> origins_;
};

}  // namespace weft::check
