// Flags of work requests, and batches of requests that are posted with one doorbell.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weft/verbs/address_handle.hpp"
#include "weft/verbs/data_path.hpp"
#include "weft/verbs/slice.hpp"

namespace weft::verbs {

// The flags of ibv_post_send(3), to be combined with |.
enum class SendFlags : unsigned {
  none = 0,  // no completion if it succeeds
  signaled = IBV_SEND_SIGNALED,
  fence = IBV_SEND_FENCE,          // starts after earlier reads and atomics are complete
  solicited = IBV_SEND_SOLICITED,  // raises an event at a peer that waits for solicited completions
  copied = IBV_SEND_INLINE,        // copies the bytes during the call; the lkey is ignored
};
// The flags of both.
[[nodiscard]] constexpr SendFlags operator|(SendFlags a, SendFlags b) {
  return static_cast<SendFlags>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

// The destination of a datagram. The address handle must live until the completion.
struct DatagramTarget {
  const AddressHandle& address;
  std::uint32_t queue_pair = 0;
  std::uint32_t qkey = 0;
};

namespace detail {

[[gnu::always_inline]] inline ibv_send_wr send_request(ibv_wr_opcode opcode,
                                                       std::span<const LocalSlice> from,
                                                       std::uint64_t id, SendFlags flags) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = opcode;
  request.send_flags = static_cast<unsigned>(flags);
  request.sg_list = const_cast<ibv_sge*>(reinterpret_cast<const ibv_sge*>(from.data()));
  request.num_sge = static_cast<int>(from.size());
  return request;
}

inline void set_remote(ibv_send_wr& request, const RemoteSlice& remote) {
  request.wr.rdma.remote_addr = remote.address();
  request.wr.rdma.rkey = remote.rkey();
}

inline void set_target(ibv_send_wr& request, const DatagramTarget& target) {
  request.wr.ud.ah = target.address.raw();
  request.wr.ud.remote_qpn = target.queue_pair;
  request.wr.ud.remote_qkey = target.qkey;
}

inline ibv_send_wr atomic_request(ibv_wr_opcode opcode, const RemoteSlice& remote, std::uint64_t id,
                                  SendFlags flags) {
  ibv_send_wr request = send_request(opcode, {}, id, flags);
  request.wr.atomic.remote_addr = remote.address();
  request.wr.atomic.rkey = remote.rkey();
  return request;
}

}  // namespace detail

class QueuePair;

// Collects up to `capacity` send requests that submit() posts with one doorbell. For one thread:
// make, fill and submit it in one place. A batch that is not submitted is discarded. Does not
// allocate.
//
//   auto batch = queue_pair.batch<2>();
//   batch.write(from, remote, 1, SendFlags::none);
//   batch.send(hello, 2);
//   if (const int failed = batch.submit()) ...
template <std::size_t capacity = 32>
class Batch {
 public:
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // The functions that add a request return false, and add nothing, if the batch is full.
  bool send(const LocalSlice& from, std::uint64_t id, SendFlags flags = SendFlags::signaled,
            std::optional<std::uint32_t> immediate = {}) {
    ibv_send_wr* request = add(immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, from, id, flags);
    if (request && immediate) request->imm_data = htonl(*immediate);
    return request != nullptr;
  }
  // Gathers from several slices; the list itself must also live until submit().
  bool send(std::span<const LocalSlice> from, std::uint64_t id,
            SendFlags flags = SendFlags::signaled) {
    if (count_ == capacity) return false;
    requests_[count_++] = detail::send_request(IBV_WR_SEND, from, id, flags);
    return true;
  }
  // A datagram.
  bool send_to(const DatagramTarget& target, const LocalSlice& from, std::uint64_t id,
               SendFlags flags = SendFlags::signaled) {
    ibv_send_wr* request = add(IBV_WR_SEND, from, id, flags);
    if (request) detail::set_target(*request, target);
    return request != nullptr;
  }
  // An RDMA Write; with an immediate it completes a receive of the peer.
  bool write(const LocalSlice& from, const RemoteSlice& to, std::uint64_t id,
             SendFlags flags = SendFlags::signaled, std::optional<std::uint32_t> immediate = {}) {
    ibv_send_wr* request =
        add(immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, from, id, flags);
    if (!request) return false;
    detail::set_remote(*request, to);
    if (immediate) request->imm_data = htonl(*immediate);
    return true;
  }
  // An RDMA Read.
  bool read(const LocalSlice& into, const RemoteSlice& from, std::uint64_t id,
            SendFlags flags = SendFlags::signaled) {
    ibv_send_wr* request = add(IBV_WR_RDMA_READ, into, id, flags);
    if (request) detail::set_remote(*request, from);
    return request != nullptr;
  }
  // As QueuePair::post_fetch_and_add().
  bool fetch_and_add(const LocalSlice& before, const RemoteSlice& target, std::uint64_t addend,
                     std::uint64_t id, SendFlags flags = SendFlags::signaled) {
    ibv_send_wr* request = add(IBV_WR_ATOMIC_FETCH_AND_ADD, before, id, flags);
    if (!request) return false;
    request->wr.atomic = {target.address(), addend, 0, target.rkey()};
    return true;
  }
  // As QueuePair::post_compare_and_swap().
  bool compare_and_swap(const LocalSlice& before, const RemoteSlice& target, std::uint64_t expected,
                        std::uint64_t desired, std::uint64_t id,
                        SendFlags flags = SendFlags::signaled) {
    ibv_send_wr* request = add(IBV_WR_ATOMIC_CMP_AND_SWP, before, id, flags);
    if (!request) return false;
    request->wr.atomic = {target.address(), expected, desired, target.rkey()};
    return true;
  }

  // The number of requests that were added.
  [[nodiscard]] std::size_t size() const { return count_; }

  // Posts the requests. Returns 0, or the errno of ibv_post_send(3); then the first posted()
  // requests were accepted and the rest were not. The batch is empty afterwards.
  [[nodiscard]] int submit() {
    posted_ = count_;
    if (count_ == 0) return 0;
    for (std::size_t i = 0; i + 1 < count_; ++i) requests_[i].next = &requests_[i + 1];
    requests_[count_ - 1].next = nullptr;
    ibv_send_wr* bad = nullptr;
    const int failed = detail::errno_of(ibv_post_send(queue_pair_, requests_.data(), &bad));
    if (failed && bad) posted_ = static_cast<std::size_t>(bad - requests_.data());
    count_ = 0;
    return failed;
  }
  // The number of requests that the last submit() has posted.
  [[nodiscard]] std::size_t posted() const { return posted_; }

 private:
  friend class QueuePair;
  explicit Batch(ibv_qp* queue_pair) : queue_pair_(queue_pair) {}

  ibv_send_wr* add(ibv_wr_opcode opcode, const LocalSlice& slice, std::uint64_t id,
                   SendFlags flags) {
    if (count_ == capacity) return nullptr;
    slices_[count_] = slice;
    requests_[count_] = detail::send_request(opcode, std::span(&slices_[count_], 1), id, flags);
    return &requests_[count_++];
  }

  ibv_qp* queue_pair_;
  std::size_t count_ = 0;
  std::size_t posted_ = 0;
  std::array<ibv_send_wr, capacity> requests_;
  std::array<LocalSlice, capacity> slices_;
};

// Collects up to `capacity` receives that submit() posts together.
template <std::size_t capacity = 32>
class ReceiveBatch {
 public:
  ReceiveBatch(const ReceiveBatch&) = delete;
  ReceiveBatch& operator=(const ReceiveBatch&) = delete;

  // The functions that add a receive return false, and add nothing, if the batch is full.
  bool receive(const LocalSlice& into, std::uint64_t id) {
    if (count_ == capacity) return false;
    slices_[count_] = into;
    return receive(std::span<const LocalSlice>(&slices_[count_], 1), id);
  }
  // Scatters into several slices; the list itself must also live until submit().
  bool receive(std::span<const LocalSlice> into, std::uint64_t id) {
    if (count_ == capacity) return false;
    ibv_recv_wr& request = requests_[count_++];
    request.wr_id = id;
    request.sg_list = const_cast<ibv_sge*>(reinterpret_cast<const ibv_sge*>(into.data()));
    request.num_sge = static_cast<int>(into.size());
    return true;
  }

  // The number of receives that were added.
  [[nodiscard]] std::size_t size() const { return count_; }

  // Posts the receives. Returns 0 (also if the batch is empty), or the errno of ibv_post_recv(3);
  // then the first posted() receives were accepted and the rest were not. The batch is empty
  // afterwards.
  [[nodiscard]] int submit() {
    posted_ = count_;
    if (count_ == 0) return 0;
    for (std::size_t i = 0; i + 1 < count_; ++i) requests_[i].next = &requests_[i + 1];
    requests_[count_ - 1].next = nullptr;
    ibv_recv_wr* bad = nullptr;
    const int failed = detail::errno_of(ibv_post_recv(queue_pair_, requests_.data(), &bad));
    if (failed && bad) posted_ = static_cast<std::size_t>(bad - requests_.data());
    count_ = 0;
    return failed;
  }
  // How many receives the last submit() has posted.
  [[nodiscard]] std::size_t posted() const { return posted_; }

 private:
  friend class QueuePair;
  explicit ReceiveBatch(ibv_qp* queue_pair) : queue_pair_(queue_pair) {}

  ibv_qp* queue_pair_;
  std::size_t count_ = 0;
  std::size_t posted_ = 0;
  std::array<ibv_recv_wr, capacity> requests_;
  std::array<LocalSlice, capacity> slices_;
};

}  // namespace weft::verbs
