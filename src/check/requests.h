// The requests of the program that are posted and whose completions it has not polled yet.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "check/accesses.h"
#include "check/inside.h"
#include "check/memory_range.h"
#include "check/stacks.h"

namespace weft::check {

struct Request {
  std::uint64_t wr_id = 0;
  StackId posted = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;  // of sends
  bool signaled = true;
  bool is_inline = false;
  std::vector<ibv_sge> pieces{};
  std::optional<std::uint32_t> checksum{};  // of the memory of a send when it was posted
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  MemoryRanges writes{};                // of receives, Reads and atomics, where it is known
  std::vector<std::uint32_t> blocks{};  // checksums of what it held: see block_checksums()
  std::uint64_t access = 0;             // see Accesses; 0: none
  std::uint64_t posted_at = 0;          // this and the next: see Writers
  std::uint64_t ended_at = 0;
};

// The requests that may have written to memory of the process lately, but for those that are still
// posted. Not thread-safe.
class Writers {
 public:
  // A point in time, for a request that is being posted.
  [[nodiscard]] std::uint64_t begin() { return ++time_; }
  // A request that may have written there is over, at the time that is returned.
  std::uint64_t end(const MemoryRanges& ranges);
  // Whether one that was over after that time, but not at `except`, may have written to the ranges.
  // True also where that is not known any more.
  [[nodiscard]] bool any_since(std::uint64_t time, const MemoryRanges& ranges,
                               std::uint64_t except) const;

 private:
  struct Ended {
    std::uint64_t at = 0;
    MemoryRanges ranges;
  };

  std::uint64_t time_ = 0;
  std::uint64_t forgotten_ = 0;  // what was over until then
  std::deque<Ended> ended_;      // the oldest first
};

// Completions of one of the queues of a queue pair.
struct Completions {
  std::uint64_t count = 0;
  std::uint64_t flushed = 0;  // those of them with IBV_WC_WR_FLUSH_ERR

  [[nodiscard]] std::uint64_t not_flushed() const { return count - flushed; }
  void add(ibv_wc_status status) {
    ++count;
    if (status == IBV_WC_WR_FLUSH_ERR) ++flushed;
  }
};

// One queue pair. `posting` keeps the order of `sends` that of the queue pair: it is held while a
// request is noted and posted.
struct QueuePairAccount {
  const ibv_qp* qp = nullptr;
  std::uint32_t number = 0;
  bool signal_all = false;
  std::uint32_t datagram_bytes = 0;  // the MTU, of a queue pair of datagrams
  std::optional<PeerDevice> peer;    // once it is asked for
  std::uint64_t fenced = 0;          // accesses up to this number are over when a later one begins
  InsideMutex posting;
  std::deque<Request> sends;
  std::deque<Request> receives;
  bool ambiguous = false;     // two receives have had one wr_id, so that they cannot be told apart
  Completions settled_sends;  // that were polled, or dropped by a reset
  Completions settled_receives;  // likewise
};

struct SharedReceivesAccount {
  const ibv_srq* srq = nullptr;
  const ibv_cq* completions = nullptr;  // of type XRC, which has a completion queue of its own
  InsideMutex posting;
  std::deque<Request> receives;
  bool ambiguous = false;  // as above
};

// Not thread-safe, but an account may be held after its removal.
class Requests {
 public:
  std::shared_ptr<QueuePairAccount> add(const ibv_qp& qp, bool signal_all);
  void remove(const ibv_qp& qp);
  void add(const ibv_srq& srq, const ibv_cq* completions);
  void remove(const ibv_srq& srq);
  [[nodiscard]] std::shared_ptr<QueuePairAccount> find(const ibv_qp* qp) const;
  [[nodiscard]] std::shared_ptr<QueuePairAccount> find(std::uint32_t number) const;
  [[nodiscard]] std::shared_ptr<SharedReceivesAccount> find(const ibv_srq* srq) const;
  [[nodiscard]] std::vector<std::shared_ptr<QueuePairAccount>> queue_pairs() const;
  [[nodiscard]] std::vector<std::shared_ptr<SharedReceivesAccount>> shared() const;
  // Whether a posted request may write to the ranges.
  [[nodiscard]] bool any_writes(const MemoryRanges& ranges) const;

 private:
  std::unordered_map<const ibv_qp*, std::shared_ptr<QueuePairAccount>> by_handle_;
  std::unordered_map<std::uint32_t, std::shared_ptr<QueuePairAccount>> by_number_;
  std::unordered_map<const ibv_srq*, std::shared_ptr<SharedReceivesAccount>> shared_;
};

}  // namespace weft::check
