// Checks of requests: when they are posted, when they complete, and when their memory goes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "check/checker.h"
#include "check/memory_of_requests.h"
#include "check/order.h"

namespace weft::check {

// Of a send queue: "Send 0x11 on queue pair 0x2a0001"
[[nodiscard]] std::string describe(ibv_wr_opcode opcode, std::uint64_t wr_id,
                                   std::uint32_t queue_pair);
[[nodiscard]] std::string describe(const Request& request, std::uint32_t queue_pair);

// A list of pieces that the device will refuse is taken for an empty one.
[[nodiscard]] std::vector<ibv_sge> pieces_of(const ibv_sge* list, int count);

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

// A completion that the program has polled, with the opcode and the length that the device gave it.
// Returns the type of its queue pair, if this is one of the program's.
std::optional<ibv_qp_type> check_completion(Call& call, const ibv_wc& completion);

// The queue pair was reset, or is destroyed: its requests are dropped.
void forget_requests(QueuePairAccount& account);

// Before a queue pair is destroyed: an access of its peer that was refused, and what was missing.
void check_refused_peer(Call& call, ibv_qp* qp);

// A region that is about to be deregistered.
void check_deregistration(Call& call, const ibv_mr& mr);

}  // namespace weft::check
