// Work requests that are made to fail: copies whose memory keys are not valid, so that the device
// finds the error when it carries them out, and does what it does about such an error.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <optional>

#include "device/limits.h"
#include "faults/rules.h"

namespace weft::device {

// The point of the rules that a request of ibv_post_send(3) passes; nothing for requests that stay
// within the device (windows, invalidation).
[[nodiscard]] std::optional<faults::Point> point_of(ibv_wr_opcode opcode);
[[nodiscard]] std::uint64_t length_of(const ibv_sge* list, int count);

// A Send, Write, Read or atomic. An error that the peer reports, of a request that names memory of
// the peer, is made by the wrong key of that memory, so that the peer notices it as well; any other
// error by the wrong key of local memory. The queue pair replaces the status of the completion.
class FailingSend {
 public:
  // `request` must have at most limits::max_slices pieces. This object and what `request` points to
  // must live until it is posted.
  FailingSend(const ibv_send_wr& request, ibv_wc_status status);
  FailingSend(const FailingSend&) = delete;
  FailingSend& operator=(const FailingSend&) = delete;

  [[nodiscard]] const ibv_send_wr& request() const { return request_; }

 private:
  ibv_send_wr request_;
  std::array<ibv_sge, limits::max_slices> list_;
};

class FailingReceive {
 public:
  explicit FailingReceive(const ibv_recv_wr& request);
  FailingReceive(const FailingReceive&) = delete;
  FailingReceive& operator=(const FailingReceive&) = delete;

  [[nodiscard]] const ibv_recv_wr& request() const { return request_; }

 private:
  ibv_recv_wr request_;
  std::array<ibv_sge, limits::max_slices> list_;
};

}  // namespace weft::device
