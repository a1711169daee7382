#include "device/completion/extended_completion_queue.h"

#include <cerrno>
#include <memory>
#include <new>

#include "device/completion/completion_queue.h"
#include "device/context.h"
#include "device/limits.h"

namespace weft::device {
namespace {

constexpr std::uint64_t stamps =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
// What adapters with a receive checksum or flow tags have in addition does not exist here.
constexpr std::uint64_t offered_fields = IBV_WC_STANDARD_FLAGS | stamps;
// IGNORE_OVERRUN only keeps the queue quiet: a completion that does not fit is lost all the same.
constexpr std::uint32_t offered_flags =
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

CompletionQueue* queue_of(ibv_cq_ex* cq) {
  return CompletionQueue::of(ibv_cq_ex_to_cq(cq));
}

// ibv_start_poll(3) defines no attributes yet.
int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
  if (attributes && attributes->comp_mask != 0) return EINVAL;
  return queue_of(cq)->start_poll();
}

int next_poll(ibv_cq_ex* cq) {
  return queue_of(cq)->next_poll();
}

void end_poll(ibv_cq_ex* cq) {
  queue_of(cq)->end_poll();
}

// Reads one field of the current completion, see CompletionQueue::current().
template <auto field>
auto read(ibv_cq_ex* cq) {
  return queue_of(cq)->current().*field;
}

std::uint64_t read_timestamp(ibv_cq_ex* cq) {
  return queue_of(cq)->current_stamp().raw_ns;
}

std::uint64_t read_wallclock(ibv_cq_ex* cq) {
  return queue_of(cq)->current_stamp().wallclock_ns;
}

// The functions of fields that were not requested stay null, as with adapters' drivers.
void set_readers(ibv_cq_ex& cq, std::uint64_t fields) {
  const auto wanted = [fields](std::uint64_t field) { return (fields & field) != 0; };
  // Each queue has its own table: libibverbs calls these inline through the queue, without a
  // lookup.
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read<&ibv_wc::opcode>;
  cq.read_vendor_err = read<&ibv_wc::vendor_err>;
  cq.read_wc_flags = read<&ibv_wc::wc_flags>;
  if (wanted(IBV_WC_EX_WITH_BYTE_LEN)) cq.read_byte_len = read<&ibv_wc::byte_len>;
  if (wanted(IBV_WC_EX_WITH_IMM)) cq.read_imm_data = read<&ibv_wc::imm_data>;
  if (wanted(IBV_WC_EX_WITH_QP_NUM)) cq.read_qp_num = read<&ibv_wc::qp_num>;
  if (wanted(IBV_WC_EX_WITH_SRC_QP)) cq.read_src_qp = read<&ibv_wc::src_qp>;
  if (wanted(IBV_WC_EX_WITH_SLID)) {
    cq.read_slid = [](ibv_cq_ex* of) -> std::uint32_t { return queue_of(of)->current().slid; };
  }
  if (wanted(IBV_WC_EX_WITH_SL)) cq.read_sl = read<&ibv_wc::sl>;
  if (wanted(IBV_WC_EX_WITH_DLID_PATH_BITS)) {
    cq.read_dlid_path_bits = read<&ibv_wc::dlid_path_bits>;
  }
  if (wanted(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)) cq.read_completion_ts = read_timestamp;
  if (wanted(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) {
    cq.read_completion_wallclock_ns = read_wallclock;
  }
}

// EINVAL for invalid attributes, EOPNOTSUPP for valid ones that this device does not support. A
// parent domain is accepted and not used, see memory/domains.h.
int check(ibv_context* context, const ibv_cq_init_attr_ex& wanted, std::uint32_t flags) {
  if (!CompletionQueue::holds(Context::of(context)->device(), wanted.cqe) ||
      wanted.comp_vector >= static_cast<std::uint32_t>(context->num_comp_vectors) ||
      (wanted.channel && wanted.channel->context != context)) {
    return EINVAL;
  }
  // Only a parent domain may be named here (ibv_create_cq_ex(3)); it has a domain that it was made
  // of.
  if ((wanted.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
    const bool parent = wanted.parent_domain && wanted.parent_domain->context == context &&
                        ProtectionDomain::of(wanted.parent_domain)->holders[0];
    if (!parent) return EINVAL;
  }
  constexpr std::uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  const bool unknown = (wanted.comp_mask & ~known) != 0 || (flags & ~offered_flags) != 0 ||
                       (wanted.wc_flags & ~offered_fields) != 0;
  return unknown ? EOPNOTSUPP : 0;
}

}  // namespace

ibv_cq_ex* create_extended_completion_queue(ibv_context* verbs, ibv_cq_init_attr_ex* wanted) {
  const std::uint32_t flags = (wanted->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) ? wanted->flags : 0;
  int failed = check(verbs, *wanted, flags);
  if (failed == 0) {
    failed = Context::of(verbs)->device().fault_of(faults::Point::create_completion_queue);
  }
  if (failed != 0) {
    errno = failed;
    return nullptr;
  }
  try {
    Context* context = Context::of(verbs);
    CompletionChannel* channel = wanted->channel ? CompletionChannel::of(wanted->channel) : nullptr;
    auto made = std::make_unique<CompletionQueue>(*context, static_cast<int>(wanted->cqe),
                                                  wanted->cq_context, channel);
    // Two clock readings for each completion are made only where a program asks for time stamps.
    made->extend({.stamps = (wanted->wc_flags & stamps) != 0,
                  .single_threaded = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0,
                  .ignore_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0});
    set_readers(*made->extended(), wanted->wc_flags);
    // ibv_close_device(3) deletes the context only where this count is 0.
    ++context->objects;
    return made.release()->extended();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

// The clock of the time stamps, in nanoseconds: hca_core_clock of query_device_ex() names the unit.
int query_real_time_values(ibv_context* /*context*/, ibv_values_ex* values) {
  if ((values->comp_mask & ~std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return EINVAL;
  if (values->comp_mask != 0) {
    values->raw_clock = {.tv_sec = 0, .tv_nsec = static_cast<long>(CompletionStamp::now().raw_ns)};
  }
  return 0;
}

}  // namespace weft::device
