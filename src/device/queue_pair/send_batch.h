// The other way to post: ibv_wr_start(3) to ibv_wr_complete(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/quick_mutex.h"

namespace weft::device {

class QueuePair;

// Collects the requests of one batch, which are posted together or not at all. From start() to
// complete() or abort() other threads' start() waits. Data that is given inline is copied at once,
// and so are scatter lists; errors are remembered, and said by complete().
class SendBatch {
 public:
  // `operations`: IBV_QP_EX_WITH_*, what the program said that it would post.
  SendBatch(QueuePair& queue_pair, std::uint64_t operations)
      : queue_pair_(queue_pair), operations_(operations) {}

  // What a queue pair of this type can be asked for.
  [[nodiscard]] static std::uint64_t offered(ibv_qp_type type);
  // Makes the calls of ibv_wr_post(3) lead to the queue pair's batch.
  static void set_calls(ibv_qp_ex& qp);

  void start();
  // 0, or what is wrong with the first bad request; then nothing was posted.
  int complete();
  void abort();

  // A new request, with the id and flags that the program has set in its queue pair. Never null.
  ibv_send_wr& add(ibv_wr_opcode opcode, std::uint64_t operation);
  // Data and address of the newest request.
  void set_slices(std::span<const ibv_sge> slices);
  void set_inline(std::span<const ibv_data_buf> pieces);
  void set_address(ibv_ah* handle, std::uint32_t number, std::uint32_t key);
  // The peer's shared receive queue that it belongs to (XRC).
  void set_receive_queue(std::uint32_t number);

 private:
  struct Request {
    ibv_send_wr work{};
    std::size_t first_slice = 0;
    std::vector<std::byte> inline_data;
  };

  void fail(int error);
  [[nodiscard]] Request* newest();
  void link();

  QueuePair& queue_pair_;
  const std::uint64_t operations_;
  QuickMutex mutex_;
  std::vector<Request> requests_;
  std::vector<ibv_sge> slices_;
  int error_ = 0;
};

// ibv_create_qp_ex(3). Null with errno set: EINVAL, ENOMEM, EOPNOTSUPP for operations and options
// that this device does not have.
ibv_qp* create_extended_queue_pair(ibv_context* context, ibv_qp_init_attr_ex* attributes);

}  // namespace weft::device
