// What the program has done with each of its completion queues.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "check/stacks.h"

namespace weft::check {

struct CompletionAccount {
  const ibv_cq* cq = nullptr;
  // Requests that are posted, whose completions will come here and are not polled yet.
  std::int64_t outstanding = 0;
  std::uint64_t polled = 0;    // completions, without those of flushed requests
  std::uint64_t given_up = 0;  // completions that were reported as never polled
  std::uint64_t dropped = 0;   // all that queue pairs took with them
  std::uint64_t events = 0;    // taken from the channel
  std::uint64_t acknowledged = 0;
  // Completions that were in the queue when it was armed, and that no poll has taken since.
  std::uint64_t undrained = 0;
  StackId armed = 0;
};

// Not thread-safe.
class CompletionAccounts {
 public:
  void add(const ibv_cq* cq) { by_handle_[cq] = {.cq = cq}; }
  void remove(const ibv_cq* cq) { by_handle_.erase(cq); }
  // Null for a queue that is not known.
  [[nodiscard]] CompletionAccount* find(const ibv_cq* cq);
  [[nodiscard]] std::vector<CompletionAccount> of(const ibv_comp_channel* channel) const;
  [[nodiscard]] std::vector<const ibv_cq*> all() const;
  // Changes `outstanding` of a queue that may be unknown, and returns it.
  std::int64_t add_outstanding(const ibv_cq* cq, std::int64_t change);

 private:
  std::unordered_map<const ibv_cq*, CompletionAccount> by_handle_;
};

}  // namespace weft::check
