#include "weft/verbs/context.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <stdexcept>

#include "verbs/capacity.h"
#include "verbs/failure.h"
#include "verbs/state.h"
#include "verbs/waiting.h"

namespace weft::verbs {

using detail::check;
using detail::check_pointer;
using detail::fail;

// The codes of IBTA's PortInfo LinkSpeedActive; 8 is FDR10, 16 is FDR.
double PortAttributes::lane_gbps() const {
  switch (raw_.active_speed) {
    case 1:
      return 2.5;
    case 2:
      return 5;
    case 4:
    case 8:
      return 10;
    case 16:
      return 14;
    case 32:
      return 25;
    case 64:
      return 50;
    case 128:
      return 100;
    default:
      return 0;
  }
}

// The codes of IBTA's PortInfo LinkWidthActive.
int PortAttributes::lanes() const {
  switch (raw_.active_width) {
    case 1:
      return 1;
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 0;
  }
}

// Code 1 is 256 bytes, and each further code doubles it.
int mtu_bytes(ibv_mtu mtu) {
  return 128 << static_cast<int>(mtu);
}

// Every event must be acknowledged: the destruction of the object that it concerns waits for that
// (ibv_get_async_event(3)).
AsyncEvent::~AsyncEvent() {
  if (state_) state_->table.ack_async_event(&raw_);
}

std::string_view AsyncEvent::name() const {
  return detail::event_name(type());
}

Context::Context(std::shared_ptr<detail::ContextState> state)
    : state_(std::move(state)), raw_(state_->raw) {}

Backend Context::backend() const {
  return state_->backend;
}

std::string Context::device_name() const {
  return state_->device_name();
}

ibv_device_attr Context::query() const {
  ibv_device_attr attributes{};
  check(state_->table.query_device(raw_, &attributes), "cannot query the device");
  return attributes;
}

ibv_device_attr_ex Context::query_extended() const {
  ibv_device_attr_ex attributes{};
  check(query_device_ex(attributes), "cannot query the device");
  return attributes;
}

// Calls the device's function directly: the inline function of verbs.h would call the linked C
// library for a device without the extended form, which may be another provider than this
// context's.
int Context::query_device_ex(ibv_device_attr_ex& attributes) const {
  // NOLINTNEXTLINE(clang-diagnostic-gnu-statement-expression)
  verbs_context* extended = verbs_get_ctx_op(raw_, query_device_ex);
  if (extended) {
    return extended->query_device_ex(raw_, nullptr, &attributes, sizeof attributes);
  }
  return state_->table.query_device(raw_, &attributes.orig_attr);
}

// The extended form fills in more fields; the fallback is for providers without it.
PortAttributes Context::query_port(std::uint8_t port) const {
  ibv_port_attr attributes{};
  // NOLINTNEXTLINE(clang-diagnostic-gnu-statement-expression)
  verbs_context* extended = verbs_get_ctx_op(raw_, query_port);
  const int failed = extended
                         ? extended->query_port(raw_, port, &attributes, sizeof attributes)
                         : state_->table.query_port(
                               raw_, port, reinterpret_cast<_compat_ibv_port_attr*>(&attributes));
  if (failed) {
    const unsigned ports = query().phys_port_cnt;
    const bool exists = port >= 1 && port <= ports;
    fail(failed,
         fmt::format("cannot query port {} of {}{}", port, device_name(),
                     exists ? "" : fmt::format(", whose ports are 1 to {}", ports)),
         {.object = "port", .attribute = "port_num", .requested = port, .limit = ports});
  }
  return PortAttributes(attributes);
}

// Reads all ports' tables in one call. The device skips empty rows, so the result may be shorter.
std::vector<GidEntry> Context::gids() const {
  std::size_t rows = 0;
  const int ports = query().phys_port_cnt;
  for (int port = 1; port <= ports; ++port) {
    const int length = query_port(static_cast<std::uint8_t>(port)).gid_table_length();
    rows += static_cast<std::size_t>(length);
  }
  std::vector<ibv_gid_entry> raw(rows);
  const auto known =
      state_->table.query_gid_table(raw_, raw.data(), raw.size(), 0, sizeof raw.front());
  // The count is negative on failure: the error number with its sign changed.
  if (known < 0) fail(static_cast<int>(-known), "cannot read the GID table of " + device_name());
  std::vector<GidEntry> entries;
  for (const ibv_gid_entry& row : std::span(raw).first(static_cast<std::size_t>(known))) {
    entries.push_back({Gid(row.gid), row.gid_index, row.port_num,
                       static_cast<ibv_gid_type>(row.gid_type), row.ndev_ifindex});
  }
  return entries;
}

Gid Context::query_gid(std::uint8_t port, int index) const {
  ibv_gid gid{};
  if (state_->table.query_gid(raw_, port, index, &gid)) {
    const int why = errno;
    const int rows = query_port(port).gid_table_length();
    fail(why,
         fmt::format("port {} of {} has no GID {}: its table has {} rows", port, device_name(),
                     index, rows),
         {.object = "GID table",
          .attribute = "gid_index",
          .requested = static_cast<std::uint64_t>(index),
          .limit = static_cast<std::uint64_t>(rows - 1)});
  }
  return Gid(gid);
}

ProtectionDomain Context::create_domain() const {
  ibv_pd* made = check_pointer(state_->table.alloc_pd(raw_), "cannot create a protection domain");
  return ProtectionDomain(std::make_shared<detail::DomainState>(state_, made));
}

CompletionChannel Context::create_channel() const {
  ibv_comp_channel* made =
      check_pointer(state_->table.create_comp_channel(raw_), "cannot create a completion channel");
  // A thread waits in poll(2) instead, so that it can respect its deadline.
  detail::set_nonblocking(made->fd);
  return CompletionChannel(std::make_shared<detail::ChannelState>(state_, made));
}

// The C object's context is the state, so that an event of the channel leads back to it; the user's
// own context is kept in the state.
CompletionQueue Context::create_completion_queue(int entries,
                                                 const CompletionQueueOptions& options) const {
  auto channel = options.channel ? options.channel->state_.get() : nullptr;
  auto state = std::make_shared<detail::CompletionQueueState>(state_, std::move(channel),
                                                              options.user_context);
  errno = 0;  // some providers of rdma-core do not set it
  state->raw = state_->table.create_cq(
      raw_, entries, state.get(), state->channel ? state->channel->raw : nullptr, options.vector);
  if (!state->raw) {
    const int why = errno ? errno : EINVAL;
    const auto reason = detail::explain_entries(*this, entries, options.vector);
    fail(why, fmt::format("cannot create a completion queue of {} entries{}", entries, reason.text),
         reason.detail);
  }
  return CompletionQueue(std::move(state));
}

void CompletionIteration::throw_busy() {
  throw std::logic_error("this completion queue is being iterated over already");
}

ExtendedCompletionQueue Context::create_extended_completion_queue(
    int entries, const ExtendedCompletionQueueOptions& options) const {
  auto channel = options.channel ? options.channel->state_.get() : nullptr;
  auto state = std::make_shared<detail::CompletionQueueState>(state_, std::move(channel),
                                                              options.user_context);
  // The functions that every completion has read these fields, so the program need not ask for
  // them.
  constexpr std::uint64_t always =
      IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP;
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = static_cast<std::uint32_t>(entries);
  attributes.cq_context = state.get();
  attributes.channel = state->channel ? state->channel->raw : nullptr;
  attributes.comp_vector = static_cast<std::uint32_t>(options.vector);
  attributes.wc_flags = always | options.fields;
  if (options.single_threaded) {
    attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attributes.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  }
  ibv_cq_ex* made = ibv_create_cq_ex(raw_, &attributes);
  if (!made) {
    const int why = errno;
    const auto reason = detail::explain_entries(*this, entries, options.vector);
    fail(why,
         fmt::format("cannot create a completion queue of {} entries with fields {:#x} on {}{}",
                     entries, attributes.wc_flags, device_name(), reason.text),
         reason.detail);
  }
  state->raw = ibv_cq_ex_to_cq(made);
  return {CompletionQueue(std::move(state)), attributes.wc_flags};
}

XrcDomain::XrcDomain(std::shared_ptr<detail::XrcDomainState> state)
    : state_(std::move(state)), raw_(state_->raw) {}

XrcDomain Context::open_xrc_domain(int fd) const {
  ibv_xrcd_init_attr attributes{};
  attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attributes.fd = fd;
  // The only flag that ibv_open_xrcd(3) allows for a domain without a file.
  attributes.oflags = O_CREAT;
  ibv_xrcd* made = ibv_open_xrcd(raw_, &attributes);
  if (!made) {
    const int why = errno;
    fail(why, "cannot open an XRC domain on " + device_name());
  }
  return XrcDomain(std::make_shared<detail::XrcDomainState>(state_, made));
}

// The clock counts ticks of the device; hca_core_clock of the extended attributes is its frequency
// in kHz.
std::uint64_t Context::query_clock() const {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  if (const int failed = ibv_query_rt_values_ex(raw_, &values)) {
    fail(failed, "cannot read the clock of " + device_name());
  }
  // Providers return the whole tick count in tv_nsec.
  return static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
}

// ibv_open_device(3) opens the descriptor in blocking mode, which would ignore the deadline.
std::optional<AsyncEvent> Context::next_event(Deadline deadline) const {
  detail::set_nonblocking(raw_->async_fd);
  while (true) {
    ibv_async_event event{};
    if (state_->table.get_async_event(raw_, &event) == 0) return AsyncEvent(state_, event);
    if (errno != EAGAIN && errno != EINTR) fail(errno, "cannot wait for an asynchronous event");
    if (!detail::await_readable(raw_->async_fd, deadline)) return std::nullopt;
  }
}

std::size_t Context::dispatch_events(const std::function<void(const AsyncEvent&)>& handle) const {
  std::size_t count = 0;
  while (const auto event = next_event(Deadline::now())) {
    handle(*event);
    ++count;
  }
  return count;
}

}  // namespace weft::verbs
