// Checks of requests when they are posted.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <deque>
#include <vector>

#include "check/checker.h"
#include "check/memory_of_requests.h"
#include "check/order.h"

namespace weft::check {

// The requests of one post, noted before the device gets them.
class PostedSends {
 public:
  PostedSends(Call& call, QueuePairAccount& account, const ibv_send_wr* first);
  // After the post: `bad` is the first request that was not posted, or null.
  void finish(int failed, const ibv_send_wr* bad);

 private:
  void restore(const ibv_send_wr* bad);

  Call& call_;
  QueuePairAccount& account_;
  std::size_t count_ = 0;
  const ibv_send_wr* first_;
  std::vector<FilledMemory> filled_;  // of Reads, until they are posted
  OrderOfPosts order_;
};

class PostedReceives {
 public:
  // One of both is null.
  PostedReceives(Call& call, QueuePairAccount* account, SharedReceivesAccount* shared,
                 const ibv_recv_wr* first);
  void finish(int failed, const ibv_recv_wr* bad);

 private:
  [[nodiscard]] std::deque<Request>& queue() const;

  Call& call_;
  QueuePairAccount* account_;
  SharedReceivesAccount* shared_;
  std::size_t count_ = 0;
  const ibv_recv_wr* first_;
};

}  // namespace weft::check
