// Requests that need an order which nothing gives them. Both queue pairs of a pair lead to this
// process, so that each is one of two ways to the same memory.
#include <infiniband/verbs.h>

#include <cstdint>
#include <utility>

#include "check/cases.h"
#include "check/pair.h"

namespace misuse {
namespace {

constexpr unsigned signaled = IBV_SEND_SIGNALED;
constexpr unsigned fenced = unsigned{IBV_SEND_SIGNALED} | unsigned{IBV_SEND_FENCE};
// Of the pair's memory: bytes at 32768 are those of the peer.
constexpr std::size_t local = 8192;
constexpr std::size_t elsewhere = 16384;
constexpr std::size_t remote = 32768;

void post(Pair& pair, ibv_qp* qp, ibv_wr_opcode opcode, std::size_t from, std::size_t to,
          unsigned flags = signaled, std::uint32_t bytes = 64) {
  const auto start = reinterpret_cast<std::uintptr_t>(pair.memory.data());
  ibv_sge piece = pair.piece(from, bytes);
  ibv_send_wr request{};
  request.wr_id = to;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = flags;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.wr.atomic = {start + to, 1, 0, pair.remote_key};
  } else {
    request.wr.rdma = {start + to, pair.remote_key};
  }
  ibv_send_wr* failing = nullptr;
  need(ibv_post_send(qp, &request, &failing) == 0, "ibv_post_send");
}

void unordered_access(bool bad) {
  Pair pair;
  post(pair, pair.sender, IBV_WR_RDMA_WRITE, local, remote);
  if (!bad) Pair::poll(pair.sender_cq);
  post(pair, pair.receiver, IBV_WR_RDMA_READ, elsewhere, remote + 63);
  if (bad) Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  pair.close();
}

// Two Writes, whose bytes overlap or are neighbours.
void unordered_access_of_writes(bool bad) {
  Pair pair;
  post(pair, pair.sender, IBV_WR_RDMA_WRITE, local, remote);
  post(pair, pair.receiver, IBV_WR_RDMA_WRITE, local, bad ? remote + 63 : remote + 64);
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  pair.close();
}

// A Write behind a Write of the same queue pair is ordered, and two Reads need no order.
void unordered_access_of_reads(bool bad) {
  Pair pair;
  post(pair, pair.sender, bad ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, local, remote);
  post(pair, pair.receiver, IBV_WR_RDMA_READ, elsewhere, remote);
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  post(pair, pair.sender, IBV_WR_RDMA_WRITE, local, remote);
  post(pair, pair.sender, IBV_WR_RDMA_WRITE, local + 64, remote);
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.sender_cq);
  pair.close();
}

// The completion of a later request ends an unsignaled one.
void unordered_access_of_unsignaled(bool bad) {
  Pair pair;
  post(pair, pair.sender, IBV_WR_RDMA_WRITE, local, remote, 0);
  if (!bad) {
    post(pair, pair.sender, IBV_WR_RDMA_WRITE, local, remote + 4096);
    Pair::poll(pair.sender_cq);
  }
  post(pair, pair.receiver, IBV_WR_RDMA_WRITE, local, remote);
  Pair::poll(pair.receiver_cq);
  pair.close();
}

void unordered_access_of_atomics(bool bad) {
  Pair pair;
  post(pair, pair.sender, IBV_WR_ATOMIC_FETCH_AND_ADD, local, remote, signaled, 8);
  post(pair, pair.receiver, bad ? IBV_WR_RDMA_WRITE : IBV_WR_ATOMIC_FETCH_AND_ADD, elsewhere,
       remote, signaled, 8);
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  pair.close();
}

// The peer answers a Send behind the Write: so the Write is over.
void unordered_access_answered(bool bad) {
  Pair pair;
  pair.receive(elsewhere, 64);
  std::swap(pair.sender, pair.receiver);
  pair.receive(elsewhere + 64, 64);
  std::swap(pair.sender, pair.receiver);
  post(pair, pair.sender, IBV_WR_RDMA_WRITE, local, remote, 0);
  if (!bad) post(pair, pair.sender, IBV_WR_SEND, local, 0, 0);
  if (!bad) Pair::poll(pair.receiver_cq);
  post(pair, pair.receiver, IBV_WR_SEND, local, 0);
  Pair::poll(pair.receiver_cq);
  Pair::poll(pair.sender_cq);
  if (bad) post(pair, pair.sender, IBV_WR_RDMA_WRITE, local, remote, 0);
  post(pair, pair.receiver, IBV_WR_RDMA_WRITE, local, remote);
  Pair::poll(pair.receiver_cq);
  pair.close();
}

void missing_fence(bool bad) {
  Pair pair;
  pair.receive(elsewhere, 64);
  post(pair, pair.sender, IBV_WR_RDMA_READ, local, remote);
  post(pair, pair.sender, IBV_WR_SEND, local + 32, 0, bad ? signaled : fenced);
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  pair.close();
}

// An atomic, and a Write of its result or of other memory.
void missing_fence_of_atomic(bool bad) {
  Pair pair;
  post(pair, pair.sender, IBV_WR_ATOMIC_FETCH_AND_ADD, local, remote, signaled, 8);
  post(pair, pair.sender, IBV_WR_RDMA_WRITE, bad ? local : local + 8, remote + 64, signaled, 8);
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.sender_cq);
  pair.close();
}

// Inline data are copied at the post, so that a fence is too late.
void missing_fence_inline(bool bad) {
  Pair pair;
  post(pair, pair.sender, IBV_WR_RDMA_READ, local, remote);
  if (!bad) Pair::poll(pair.sender_cq);
  post(pair, pair.sender, IBV_WR_RDMA_WRITE, local, remote + 64,
       fenced | unsigned{IBV_SEND_INLINE});
  if (bad) Pair::poll(pair.sender_cq);
  Pair::poll(pair.sender_cq);
  pair.close();
}

// A fence holds for what is posted behind it, and not for a later Read.
void missing_fence_behind_another(bool bad) {
  Pair pair;
  post(pair, pair.sender, IBV_WR_RDMA_READ, local, remote);
  post(pair, pair.sender, IBV_WR_RDMA_WRITE, elsewhere, remote + 4096, fenced);
  if (bad) post(pair, pair.sender, IBV_WR_RDMA_READ, local, remote);
  post(pair, pair.sender, IBV_WR_RDMA_WRITE, local, remote + 8192);
  for (int i = 0; i < (bad ? 4 : 3); ++i) Pair::poll(pair.sender_cq);
  pair.close();
}

// Another queue pair knows nothing of a fence.
void missing_fence_of_two_queue_pairs(bool bad) {
  Pair pair;
  post(pair, pair.sender, IBV_WR_RDMA_READ, local, remote);
  if (!bad) Pair::poll(pair.sender_cq);
  post(pair, pair.receiver, IBV_WR_RDMA_WRITE, local, remote + 4096, fenced);
  if (bad) Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  pair.close();
}

}  // namespace

Cases order_cases() {
  return {{"unordered-access", unordered_access},
          {"unordered-access.of-writes", unordered_access_of_writes},
          {"unordered-access.of-reads", unordered_access_of_reads},
          {"unordered-access.of-unsignaled", unordered_access_of_unsignaled},
          {"unordered-access.of-atomics", unordered_access_of_atomics},
          {"unordered-access.answered", unordered_access_answered},
          {"missing-fence", missing_fence},
          {"missing-fence.of-atomic", missing_fence_of_atomic},
          {"missing-fence.inline", missing_fence_inline},
          {"missing-fence.behind-another", missing_fence_behind_another},
          {"missing-fence.of-two-queue-pairs", missing_fence_of_two_queue_pairs}};
}

}  // namespace misuse
