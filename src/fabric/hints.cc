#include "fabric/hints.h"

#include <sys/socket.h>

#include <cstring>
#include <string_view>

#include "fabric/info.h"

namespace weft::fabric {
namespace {

// Both are sets of bits: nothing may be wanted that is not offered.
bool within(std::uint64_t wanted, std::uint64_t offered) {
  return (wanted & ~offered) == 0;
}

// Null stands for any name.
bool is_name(const char* wanted, const char* ours) {
  return !wanted || std::string_view(wanted) == ours;
}

// 0 stands for the default.
bool is_queue_size(std::size_t wanted) {
  return wanted == 0 || (wanted >= stream::min_queue && wanted <= stream::max_queue);
}

// Every transfer is complete, and its buffer reusable, when its call returns. So these flags change
// nothing and are accepted.
constexpr std::uint64_t operation_flags = FI_INJECT | FI_INJECT_COMPLETE;

bool can_serve(const fi_tx_attr& wanted) {
  return within(wanted.caps, capabilities) && within(wanted.op_flags, operation_flags) &&
         within(wanted.msg_order, message_order) && within(wanted.comp_order, FI_ORDER_STRICT) &&
         wanted.inject_size == 0 && is_queue_size(wanted.size) && wanted.iov_limit <= max_pieces &&
         wanted.rma_iov_limit == 0;
}

bool can_serve(const fi_rx_attr& wanted) {
  return within(wanted.caps, capabilities) && wanted.op_flags == 0 &&
         within(wanted.msg_order, message_order) && within(wanted.comp_order, FI_ORDER_STRICT) &&
         wanted.total_buffered_recv == 0 && is_queue_size(wanted.size) &&
         wanted.iov_limit <= max_pieces;
}

bool can_serve(const fi_ep_attr& wanted) {
  const bool type = wanted.type == FI_EP_UNSPEC || wanted.type == FI_EP_SOCK_STREAM;
  const bool protocol = wanted.protocol == FI_PROTO_UNSPEC || wanted.protocol == FI_PROTO_RSTREAM ||
                        wanted.protocol == FI_PROTO_IWARP;
  return type && protocol && wanted.protocol_version <= protocol_version &&
         wanted.msg_prefix_size == 0 && wanted.tx_ctx_cnt <= 1 && wanted.rx_ctx_cnt <= 1 &&
         wanted.auth_key_size == 0;
}

// There are no completion queues, counters or shared contexts, so hints may ask for none.
bool can_serve(const fi_domain_attr& wanted) {
  return is_name(wanted.name, domain_name()) && wanted.cq_data_size == 0 && wanted.cq_cnt == 0 &&
         wanted.cntr_cnt == 0 && wanted.tx_ctx_cnt <= 1 && wanted.rx_ctx_cnt <= 1 &&
         wanted.max_ep_tx_ctx <= 1 && wanted.max_ep_rx_ctx <= 1 && wanted.max_ep_stx_ctx == 0 &&
         wanted.max_ep_srx_ctx == 0 && within(wanted.caps, FI_LOCAL_COMM | FI_REMOTE_COMM) &&
         wanted.auth_key_size == 0;
}

bool can_serve(std::uint32_t address_format) {
  return address_format == FI_FORMAT_UNSPEC || address_format == FI_SOCKADDR ||
         address_format == FI_SOCKADDR_IN || address_format == FI_SOCKADDR_IN6;
}

}  // namespace

const char* domain_name() {
  const bool embedded = verbs::choose_backend().backend == verbs::Backend::embedded;
  return embedded ? "weft0" : "system";
}

bool can_serve(const fi_info& hints) {
  return within(hints.caps, capabilities) && can_serve(hints.addr_format) &&
         (!hints.tx_attr || can_serve(*hints.tx_attr)) &&
         (!hints.rx_attr || can_serve(*hints.rx_attr)) &&
         (!hints.ep_attr || can_serve(*hints.ep_attr)) &&
         (!hints.domain_attr || can_serve(*hints.domain_attr)) &&
         (!hints.fabric_attr || is_name(hints.fabric_attr->name, provider_name));
}

}  // namespace weft::fabric
