// A queue pair that connects by GID and number, like programs without rdma_cm.
#pragma once

#include "device/pair_fixture.h"

namespace weft::device {

// A device of its own, like another process's: one address, and so one GID.
[[nodiscard]] std::unique_ptr<Device> make_roce_device(const std::string& address = "127.0.0.1");
// The same with a port of InfiniBand.
[[nodiscard]] std::unique_ptr<Device> make_ib_device();

class RawEnd : public End {
 public:
  explicit RawEnd(Device& device, const EndOptions& options = {}) : End(device, options) {}

  [[nodiscard]] ibv_qp_type type() { return queue_pair->verbs()->qp_type; }
  [[nodiscard]] std::uint32_t number() { return queue_pair->verbs()->qp_num; }
  [[nodiscard]] ibv_gid gid();
  [[nodiscard]] ibv_qp_state state() { return queue_pair->verbs()->state; }

  int to_init();
  // The attributes of one transition, for tests that change one of them.
  [[nodiscard]] static ibv_qp_attr rtr_attributes(const ibv_gid& gid, std::uint32_t number);
  int to_rtr(const ibv_gid& gid, std::uint32_t number);
  // By default with the shortest timeout that attributes allow, the device's lower limit.
  int to_rts(std::uint8_t timeout = 1, std::uint8_t retries = 0, std::uint8_t rnr_retries = 0);
  int to(ibv_qp_state state);
  // Takes the queue pair to RTS with this peer.
  void connect(RawEnd& peer, std::uint8_t rnr_retries = 0);
  // The same, but a request that the peer does not answer fails after 100 ms.
  void connect_briefly(RawEnd& peer);

  // True if nothing completes for a while. A slow machine cannot make a correct implementation
  // fail.
  [[nodiscard]] bool stays_quiet();
};

inline constexpr int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
inline constexpr int unreliable_rtr_mask =
    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

// Sends one message from `from` to `to` and awaits both completions.
void pass_message(RawEnd& from, RawEnd& to);

}  // namespace weft::device
