// The order of posted requests that the program takes for granted.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <string>
#include <vector>

#include "check/checker.h"

namespace weft::check {

// The requests of one post. They are noted in their order.
class OrderOfPosts {
 public:
  explicit OrderOfPosts(QueuePairAccount& account) : account_(account) {}
  // Before the post. False if earlier requests have still to fill memory that this one sends, so
  // that it changes with right.
  [[nodiscard]] bool note(Request& request, const ibv_send_wr& given);
  // After the post, of which the first `posted` requests succeeded. The others are not noted any
  // more.
  void report(Call& call, std::size_t posted) const;

 private:
  struct Disorder {
    std::size_t request = 0;  // its place in the post
    Rule rule = Rule::unordered_access;
    std::string what;
    StackId other = 0;
  };

  void check_remote(const Access& access);
  void check_sources(const Access& access, const MemoryRanges& sources, unsigned flags);

  QueuePairAccount& account_;
  std::size_t count_ = 0;
  std::vector<Disorder> found_;
};

// A message of the peer has arrived on the queue pair: the peer may have sent it because it has got
// an earlier message, and then Writes in front of that one are over.
void note_answer(QueuePairAccount& account);

}  // namespace weft::check
