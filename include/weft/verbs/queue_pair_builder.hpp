// Creating queue pairs and connecting them by exchanged endpoints.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/endpoint.hpp"
#include "weft/verbs/memory.hpp"
#include "weft/verbs/queue_pair.hpp"

namespace weft::verbs {

class CompletionQueue;
class SharedReceiveQueue;

namespace detail {
struct CompletionQueueState;
struct DomainState;
struct SharedReceiveQueueState;
}  // namespace detail

// The settings with their defaults; ibv_create_qp(3) and ibv_modify_qp(3) define them. Settings
// that do not apply to the type of the queue pair are ignored.
struct QueuePairSettings {
  ibv_qp_cap capacity{.max_send_wr = 1,
                      .max_recv_wr = 1,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_data = 0};
  Access access = Access::local;  // the peer's rights, on regions that also allow it
  std::uint8_t service_level = 0;
  std::optional<std::uint8_t> gid_index{};  // unset: by LID; Ethernet needs one, row 0 by default
  std::uint8_t traffic_class = 0;
  std::uint8_t min_rnr_timer = 16;             // a code: 2.56 ms
  std::uint8_t timeout = 4;                    // 4.096 us * 2^code; 0: never
  std::uint8_t retry_count = 6;                // retransmissions until the peer acknowledges
  std::uint8_t rnr_retry = 6;                  // retries after receiver-not-ready; 7: no limit
  std::uint8_t max_rd_atomic = 1;              // outstanding reads and atomics of this side
  std::uint8_t max_dest_rd_atomic = 1;         // outstanding reads and atomics of the peer
  std::optional<ibv_mtu> path_mtu{};           // unset: the port's active MTU
  std::optional<std::uint32_t> send_psn{};     // unset: random
  std::optional<std::uint32_t> receive_psn{};  // unset: from the peer's endpoint
  void* user_context = nullptr;                // ibv_qp's qp_context
  bool signal_all = false;  // every request completes, even without SendFlags::signaled
};

// A queue pair that is not connected yet. For one thread at a time. It keeps the objects that it
// was made from alive.
class PreparedQueuePair {
 public:
  PreparedQueuePair(PreparedQueuePair&&) noexcept = default;
  PreparedQueuePair& operator=(PreparedQueuePair&&) noexcept = default;

  // What the peer needs to connect its queue pair to this one. Throws Error.
  [[nodiscard]] WEFT_API Endpoint endpoint() const;
  // Takes the queue pair through INIT and RTR to RTS with the smaller path MTU of both sides. Does
  // not wait for the peer. Receives may be posted before and after. Throws Error.
  [[nodiscard]] WEFT_API QueuePair handshake(const Endpoint& remote) &&;
  // For datagrams: takes the queue pair to RTS with this Q_Key. Throws Error.
  [[nodiscard]] WEFT_API QueuePair activate(std::uint32_t qkey) &&;
  // Returns the queue pair in RESET, for a program that calls modify() itself.
  [[nodiscard]] WEFT_API QueuePair release() &&;

  // What the queue pair was built with.
  [[nodiscard]] const QueuePairSettings& settings() const { return settings_; }
  // The object of verbs. Belongs to this one.
  [[nodiscard]] ibv_qp* raw() const { return queue_pair().raw(); }

 private:
  friend class QueuePairBuilder;
  PreparedQueuePair(QueuePair&& queue_pair, const QueuePairSettings& settings, std::uint8_t port,
                    std::uint32_t send_psn);
  [[nodiscard]] WEFT_API const QueuePair& queue_pair() const;
  void to_init(ibv_qp_type type, std::uint32_t qkey) const;
  void to_ready_to_receive(const Endpoint& remote) const;
  void to_ready_to_send() const;

  QueuePair queue_pair_;
  QueuePairSettings settings_;
  std::uint8_t port_;
  std::uint32_t send_psn_;
};

// Builds queue pairs; ProtectionDomain::queue_pair() makes one. For one thread at a time. It keeps
// the domain and the queues alive. Each setter returns the builder, and throws
// std::invalid_argument with the valid range if the value is out of range.
class WEFT_API QueuePairBuilder {
 public:
  // How many sends may be posted at a time.
  QueuePairBuilder& max_send_requests(std::uint32_t count);
  // How many receives may be posted at a time.
  QueuePairBuilder& max_receive_requests(std::uint32_t count);
  // How many slices one send may gather.
  QueuePairBuilder& max_send_slices(std::uint32_t count);
  // How many slices one receive may scatter into.
  QueuePairBuilder& max_receive_slices(std::uint32_t count);
  // The longest request with SendFlags::copied.
  QueuePairBuilder& max_inline_bytes(std::uint32_t bytes);
  // What peers may do through this queue pair, with regions that allow it as well.
  QueuePairBuilder& access(Access access);
  QueuePairBuilder& service_level(std::uint8_t level);  // 0 to 15
  // The row of the GID table to use; see Context::best_gid().
  QueuePairBuilder& gid_index(std::uint8_t index);
  // The traffic class of what it sends: DSCP and ECN of IP.
  QueuePairBuilder& traffic_class(std::uint8_t value);
  QueuePairBuilder& min_rnr_timer(std::uint8_t code);  // 0 to 31
  // How long it waits for an acknowledgement: 4.096 us times two to this power; 0: for ever.
  QueuePairBuilder& timeout(std::uint8_t code);  // 0 to 31
  // How often it sends again without an acknowledgement.
  QueuePairBuilder& retry_count(std::uint8_t count);  // 0 to 7
  // How often it sends again where the peer has no receive; 7: without limit.
  QueuePairBuilder& rnr_retry(std::uint8_t count);  // 0 to 7
  // Reads and atomics of this side that are under way at a time.
  QueuePairBuilder& max_rd_atomic(std::uint8_t count);
  // Reads and atomics of the peer that this side answers at a time.
  QueuePairBuilder& max_dest_rd_atomic(std::uint8_t count);
  // The path MTU; the active one of the port without it.
  QueuePairBuilder& path_mtu(ibv_mtu mtu);
  // The first packet number that it sends; random without it.
  QueuePairBuilder& send_psn(std::uint32_t psn);     // 24 bits
  QueuePairBuilder& receive_psn(std::uint32_t psn);  // 24 bits
  // A pointer for the program: qp_context of ibv_qp.
  QueuePairBuilder& user_context(void* context);
  // Makes each request complete, also without SendFlags::signaled.
  QueuePairBuilder& signal_all(bool all = true);
  // Takes receives from a queue that others use as well, which it keeps alive.
  QueuePairBuilder& shared_receive_queue(const SharedReceiveQueue& queue);

  // The settings so far.
  [[nodiscard]] const QueuePairSettings& settings() const { return settings_; }
  // Creates the queue pair, ibv_create_qp(3). Throws Error. The builder may be used again.
  [[nodiscard]] PreparedQueuePair build() const;

 private:
  friend class ProtectionDomain;
  QueuePairBuilder(std::shared_ptr<detail::DomainState> domain, const CompletionQueue& send,
                   const CompletionQueue& receive, ibv_qp_type type, std::uint8_t port);

  weft::detail::Held<std::shared_ptr<detail::DomainState>, "weft::verbs::QueuePairBuilder"> domain_;
  weft::detail::Held<std::shared_ptr<detail::CompletionQueueState>, "weft::verbs::QueuePairBuilder">
      send_;
  weft::detail::Held<std::shared_ptr<detail::CompletionQueueState>, "weft::verbs::QueuePairBuilder">
      receive_;
  std::shared_ptr<detail::SharedReceiveQueueState> shared_;
  ibv_qp_type type_;
  std::uint8_t port_;
  QueuePairSettings settings_;
};

}  // namespace weft::verbs
