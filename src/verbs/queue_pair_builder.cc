#include "weft/verbs/queue_pair_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/kernel_random.h"
#include "verbs/capacity.h"
#include "verbs/failure.h"
#include "verbs/state.h"
#include "weft/verbs/completion.hpp"
#include "weft/verbs/context.hpp"
#include "weft/verbs/shared_receive_queue.hpp"

namespace weft::verbs {
namespace {

// A PSN has 24 bits.
constexpr std::uint32_t psn_limit = 1 << 24;

template <typename Number>
// Refused here, where the error can name the setting.
Number at_most(Number value, Number limit, const char* setting) {
  if (value > limit) {
    throw std::invalid_argument(
        fmt::format("{} must be from 0 to {}, not {}", setting, limit, value));
  }
  return value;
}

// A random start makes it unlikely that packets of an earlier connection are taken for this one's.
std::uint32_t random_psn() {
  return random_word() % psn_limit;
}

}  // namespace

QueuePairBuilder::QueuePairBuilder(std::shared_ptr<detail::DomainState> domain,
                                   const CompletionQueue& send, const CompletionQueue& receive,
                                   ibv_qp_type type, std::uint8_t port)
    : domain_(std::move(domain)),
      send_(send.state_.get()),
      receive_(receive.state_.get()),
      type_(type),
      port_(port) {}

QueuePairBuilder& QueuePairBuilder::max_send_requests(std::uint32_t count) {
  settings_.capacity.max_send_wr = count;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::max_receive_requests(std::uint32_t count) {
  settings_.capacity.max_recv_wr = count;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::max_send_slices(std::uint32_t count) {
  settings_.capacity.max_send_sge = count;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::max_receive_slices(std::uint32_t count) {
  settings_.capacity.max_recv_sge = count;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::max_inline_bytes(std::uint32_t bytes) {
  settings_.capacity.max_inline_data = bytes;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::access(Access access) {
  settings_.access = access;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::service_level(std::uint8_t level) {
  // The service level has 4 bits in InfiniBand's local route header.
  settings_.service_level = at_most<std::uint8_t>(level, 15, "the service level");
  return *this;
}
QueuePairBuilder& QueuePairBuilder::gid_index(std::uint8_t index) {
  settings_.gid_index = index;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::traffic_class(std::uint8_t value) {
  settings_.traffic_class = value;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::min_rnr_timer(std::uint8_t code) {
  // The timer codes have 5 bits (ibv_modify_qp(3)).
  settings_.min_rnr_timer = at_most<std::uint8_t>(code, 31, "the code of the RNR timer");
  return *this;
}
QueuePairBuilder& QueuePairBuilder::timeout(std::uint8_t code) {
  settings_.timeout = at_most<std::uint8_t>(code, 31, "the code of the timeout");
  return *this;
}
QueuePairBuilder& QueuePairBuilder::retry_count(std::uint8_t count) {
  // The counters of retries have 3 bits; 7 RNR retries mean without end (ibv_modify_qp(3)).
  settings_.retry_count = at_most<std::uint8_t>(count, 7, "the retry count");
  return *this;
}
QueuePairBuilder& QueuePairBuilder::rnr_retry(std::uint8_t count) {
  settings_.rnr_retry = at_most<std::uint8_t>(count, 7, "the RNR retry count");
  return *this;
}
QueuePairBuilder& QueuePairBuilder::max_rd_atomic(std::uint8_t count) {
  settings_.max_rd_atomic = count;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::max_dest_rd_atomic(std::uint8_t count) {
  settings_.max_dest_rd_atomic = count;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::path_mtu(ibv_mtu mtu) {
  if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) {
    throw std::invalid_argument(fmt::format("the path MTU must be a code from {} to {}, not {}",
                                            static_cast<int>(IBV_MTU_256),
                                            static_cast<int>(IBV_MTU_4096), static_cast<int>(mtu)));
  }
  settings_.path_mtu = mtu;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::send_psn(std::uint32_t psn) {
  settings_.send_psn = at_most(psn, psn_limit - 1, "a PSN");
  return *this;
}
QueuePairBuilder& QueuePairBuilder::receive_psn(std::uint32_t psn) {
  settings_.receive_psn = at_most(psn, psn_limit - 1, "a PSN");
  return *this;
}
QueuePairBuilder& QueuePairBuilder::user_context(void* context) {
  settings_.user_context = context;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::signal_all(bool all) {
  settings_.signal_all = all;
  return *this;
}
QueuePairBuilder& QueuePairBuilder::shared_receive_queue(const SharedReceiveQueue& queue) {
  shared_ = queue.state_.get();
  return *this;
}

// The new queue pair keeps the domain and its queues alive through its state.
PreparedQueuePair QueuePairBuilder::build() const {
  ibv_qp_init_attr attributes{};
  attributes.qp_context = settings_.user_context;
  attributes.send_cq = send_->raw;
  attributes.recv_cq = receive_->raw;
  attributes.srq = shared_ ? shared_->raw : nullptr;
  attributes.cap = settings_.capacity;
  attributes.qp_type = type_;
  attributes.sq_sig_all = settings_.signal_all;
  auto state = std::make_shared<detail::QueuePairState>();
  state->domain = domain_.get();
  state->send = send_.get();
  state->receive = receive_.get();
  state->shared = shared_;
  state->raw = domain_->context->table.create_qp(domain_->raw, &attributes);
  if (!state->raw) {
    const int why = errno;
    const auto reason =
        detail::explain_capacity(Context(domain_->context), settings_.capacity, why);
    detail::fail(
        why,
        fmt::format("cannot create a queue pair for {} sends and {} receives{}",
                    settings_.capacity.max_send_wr, settings_.capacity.max_recv_wr, reason.text),
        reason.detail);
  }
  return {QueuePair(std::move(state)), settings_, port_, settings_.send_psn.value_or(random_psn())};
}

PreparedQueuePair::PreparedQueuePair(QueuePair&& queue_pair, const QueuePairSettings& settings,
                                     std::uint8_t port, std::uint32_t send_psn)
    : queue_pair_(std::move(queue_pair)), settings_(settings), port_(port), send_psn_(send_psn) {}

// The queue pair; throws std::logic_error, with the name of this class, if it was taken.
const QueuePair& PreparedQueuePair::queue_pair() const {
  if (!queue_pair_.state_) weft::detail::throw_empty("weft::verbs::PreparedQueuePair");
  return queue_pair_;
}

// Adds a GID if one is configured, or if the port has no LID and can only be addressed by GID.
Endpoint PreparedQueuePair::endpoint() const {
  const Context context = queue_pair().context();
  const PortAttributes port = context.query_port(port_);
  Endpoint endpoint;
  endpoint.number = queue_pair_.number();
  endpoint.psn = send_psn_;
  endpoint.lid = port.lid();
  endpoint.mtu = settings_.path_mtu.value_or(port.active_mtu());
  // RoCE has no LIDs, so the GID is the only address there.
  if (settings_.gid_index || port.is_ethernet() || port.lid() == 0) {
    endpoint.gid = context.query_gid(port_, settings_.gid_index.value_or(0));
  }
  return endpoint;
}

// Both sides must exchange their endpoints first: a queue pair in RTR accepts packets of one peer
// only, from the PSN that this peer starts with.
QueuePair PreparedQueuePair::handshake(const Endpoint& remote) && {
  to_init(queue_pair().raw()->qp_type, 0);
  to_ready_to_receive(remote);
  to_ready_to_send();
  return std::move(queue_pair_);
}

// A datagram queue pair has no peer, so RTR takes no attributes.
QueuePair PreparedQueuePair::activate(std::uint32_t qkey) && {
  to_init(IBV_QPT_UD, qkey);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  queue_pair_.modify(attributes, IBV_QP_STATE);
  to_ready_to_send();
  return std::move(queue_pair_);
}

QueuePair PreparedQueuePair::release() && {
  static_cast<void>(queue_pair());
  return std::move(queue_pair_);
}

// Datagram queue pairs take a Q_Key in INIT, connected ones the access flags; the other attribute
// would be EINVAL.
void PreparedQueuePair::to_init(ibv_qp_type type, std::uint32_t qkey) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = port_;
  attributes.qkey = qkey;
  attributes.qp_access_flags = static_cast<unsigned>(settings_.access);
  const int own = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  queue_pair().modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | own);
}

// Sets only the attributes that the type allows in RTR: UC has no reads, atomics or RNR NAKs.
void PreparedQueuePair::to_ready_to_receive(const Endpoint& remote) const {
  const bool reliable = queue_pair_.raw()->qp_type == IBV_QPT_RC;
  AddressOptions address;
  address.gid = remote.gid;
  address.gid_index = settings_.gid_index.value_or(0);
  address.lid = remote.lid;
  address.service_level = settings_.service_level;
  address.traffic_class = settings_.traffic_class;
  address.port = port_;

  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.ah_attr = to_attributes(address);
  // Both sides take the smaller one, and so the same one, without asking again.
  attributes.path_mtu = std::min(endpoint().mtu, remote.mtu);
  attributes.dest_qp_num = remote.number;
  // The peer's first packet has its send PSN; any other number would be dropped or answered by a
  // NAK.
  attributes.rq_psn = settings_.receive_psn.value_or(remote.psn);
  attributes.max_dest_rd_atomic = settings_.max_dest_rd_atomic;
  attributes.min_rnr_timer = settings_.min_rnr_timer;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  // An attribute that the transition does not know makes the whole call EINVAL.
  if (reliable) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  queue_pair_.modify(attributes, mask);
}

// Only RC has timeouts, retries and reads.
void PreparedQueuePair::to_ready_to_send() const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = send_psn_;
  attributes.timeout = settings_.timeout;
  attributes.retry_cnt = settings_.retry_count;
  attributes.rnr_retry = settings_.rnr_retry;
  attributes.max_rd_atomic = settings_.max_rd_atomic;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (queue_pair_.raw()->qp_type == IBV_QPT_RC) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  queue_pair_.modify(attributes, mask);
}

}  // namespace weft::verbs
