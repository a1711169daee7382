// The requests of the program that are posted and whose completions it has not polled yet.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

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
};

// One queue pair. `posting` keeps the order of `sends` that of the queue pair: it is held while a
// request is noted and posted.
struct QueuePairAccount {
  const ibv_qp* qp = nullptr;
  std::uint32_t number = 0;
  bool signal_all = false;
  std::uint32_t datagram_bytes = 0;  // the MTU, of a queue pair of datagrams
  std::mutex posting;
  std::deque<Request> sends;
  std::deque<Request> receives;
};

struct SharedReceivesAccount {
  const ibv_srq* srq = nullptr;
  std::mutex posting;
  std::deque<Request> receives;
};

// Not thread-safe, but an account may be held after its removal.
class Requests {
 public:
  std::shared_ptr<QueuePairAccount> add(const ibv_qp& qp, bool signal_all);
  void remove(const ibv_qp& qp);
  void add(const ibv_srq& srq);
  void remove(const ibv_srq& srq);
  [[nodiscard]] std::shared_ptr<QueuePairAccount> find(const ibv_qp* qp) const;
  [[nodiscard]] std::shared_ptr<QueuePairAccount> find(std::uint32_t number) const;
  [[nodiscard]] std::shared_ptr<SharedReceivesAccount> find(const ibv_srq* srq) const;
  [[nodiscard]] std::vector<std::shared_ptr<QueuePairAccount>> queue_pairs() const;
  [[nodiscard]] std::vector<std::shared_ptr<SharedReceivesAccount>> shared() const;

 private:
  std::unordered_map<const ibv_qp*, std::shared_ptr<QueuePairAccount>> by_handle_;
  std::unordered_map<std::uint32_t, std::shared_ptr<QueuePairAccount>> by_number_;
  std::unordered_map<const ibv_srq*, std::shared_ptr<SharedReceivesAccount>> shared_;
};

}  // namespace weft::check
