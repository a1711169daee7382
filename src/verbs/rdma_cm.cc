#include "weft/verbs/rdma_cm.hpp"

#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "base/caller_explains.h"
#include "verbs/capacity.h"
#include "verbs/failure.h"
#include "verbs/host_lookup.h"
#include "verbs/state.h"
#include "verbs/tables.h"
#include "verbs/waiting.h"
#include "weft/verbs/device.hpp"

namespace weft::verbs {
namespace {

using detail::check_minus_one;
using detail::check_pointer;
using detail::fail;

// Owns the result of rdma_getaddrinfo(3).
class Resolved {
 public:
  Resolved(const detail::Table& table, const Address& address, int flags) : table_(table) {
    rdma_addrinfo hints{};
    hints.ai_flags = flags;
    // The port space of reliable connections, also over InfiniBand and RoCE.
    hints.ai_port_space = RDMA_PS_TCP;
    const std::string port = std::to_string(address.port);
    const char* host = address.host.empty() ? nullptr : address.host.c_str();
    const int failed = table.getaddrinfo(host, port.c_str(), &hints, &info_);
    if (failed != 0) refuse(failed, errno, address);
  }
  // The addresses point into the result, so it must outlive the call that uses them.
  ~Resolved() { table_.freeaddrinfo(info_); }
  Resolved(const Resolved&) = delete;
  Resolved& operator=(const Resolved&) = delete;

  [[nodiscard]] sockaddr* source() const { return info_->ai_src_addr; }
  [[nodiscard]] sockaddr* destination() const { return info_->ai_dst_addr; }

 private:
  // rdma_getaddrinfo(3) returns an EAI_ value, or -1 with errno. Its errno for an unknown name
  // would be that of an address which this host does not have.
  [[noreturn]] static void refuse(int failed, int why, const Address& address) {
    const bool unknown = failed == EAI_NONAME || (failed == -1 && why == EADDRNOTAVAIL);
    const bool later = failed == EAI_AGAIN || (failed == -1 && why == EAGAIN);
    std::string_view reason;
    if (unknown) reason = ": no host has that name; check it, or use a numeric address";
    if (later) reason = ": the name server does not answer; use a numeric address, or try again";
    if (unknown) why = ENXIO;
    // EAGAIN would mean to those who wait for a connection that it is still under way.
    if (later) why = EHOSTUNREACH;
    fail(why ? why : EINVAL,
         fmt::format("cannot resolve \"{}\" port {}{}", address.host, address.port, reason),
         {.object = "address",
          .attribute = "host",
          .peer = fmt::format("{} port {}", address.host, address.port)});
  }

  const detail::Table& table_;
  rdma_addrinfo* info_ = nullptr;
};

// The next step where a port is taken; empty for other errors.
std::string_view taken_port(int error) {
  if (error != EADDRINUSE) return "";
  return ": another socket of this host has that TCP port, which iWARP uses; take another port, or "
         "shift all of rdma_cm by WEFT_PORT_OFFSET=n on both sides";
}

[[noreturn]] void fail_bind(int error, const Address& address) {
  const std::string host = address.host.empty() ? "any address" : address.host;
  std::string_view next = taken_port(error);
  if (error == EADDRNOTAVAIL) next = ": this host does not have that address";
  if (error == ENODEV) next = ": no RDMA device has that address";
  fail(error, fmt::format("cannot bind to {} port {}{}", host, address.port, next),
       {.object = "address",
        .attribute = error == EADDRINUSE ? "port" : "host",
        .requested = address.port});
}

// 255 bytes are the limit of rdma_conn_param; the transport may allow less and fail with EINVAL
// itself.
rdma_conn_param to_c(const ConnectionParameters& parameters) {
  constexpr std::size_t most = 0xFF;
  if (parameters.private_data.size() > most) {
    fail(EINVAL,
         fmt::format("private data may have {} bytes at most, not {}", most,
                     parameters.private_data.size()),
         {.object = "connection",
          .attribute = "private_data",
          .requested = parameters.private_data.size(),
          .limit = most});
  }
  rdma_conn_param raw{};
  raw.private_data = parameters.private_data.data();
  raw.private_data_len = static_cast<std::uint8_t>(parameters.private_data.size());
  raw.responder_resources = parameters.responder_resources;
  raw.initiator_depth = parameters.initiator_depth;
  raw.retry_count = parameters.retry_count;
  raw.rnr_retry_count = parameters.rnr_retry_count;
  return raw;
}

}  // namespace

// --- Events --------------------------------------------------------------------------------------

void ConnectionEvent::Acknowledge::operator()(rdma_cm_event* event) const {
  channel->table.ack_cm_event(event);
}

// The deleter acknowledges the event and keeps the channel alive until then.
ConnectionEvent::ConnectionEvent(std::shared_ptr<detail::EventChannelState> channel,
                                 rdma_cm_event* raw)
    : raw_(std::unique_ptr<rdma_cm_event, Acknowledge>(raw, Acknowledge{std::move(channel)})) {}

// Rejects a request that the program has ignored, so that the peer does not wait for its timeout.
ConnectionEvent::~ConnectionEvent() {
  if (!raw_ || type() != RDMA_CM_EVENT_CONNECT_REQUEST || request_taken_) return;
  rdma_cm_id* unwanted = raw_->id;
  // A copy: the event's deleter, which holds the channel otherwise, ends with the next line.
  const auto channel = raw_.get().get_deleter().channel;
  raw_.take().reset();  // an id can be destroyed only after its events are acknowledged
  channel->table.reject(unwanted, nullptr, 0);
  channel->table.destroy_id(unwanted);
}

std::string_view ConnectionEvent::name() const {
  return raw_.get().get_deleter().channel->table.event_str(raw_->event);
}

std::string_view ConnectionEvent::description() const {
  switch (raw_->event) {
    case RDMA_CM_EVENT_ADDR_ERROR:
      return "no RDMA device of this host has a route to its address";
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return "there is no route to it";
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return "the connection broke before it was established; a program there may use the port for "
             "something else than RDMA: take another port, or shift all of rdma_cm by "
             "WEFT_PORT_OFFSET=n on both sides";
    case RDMA_CM_EVENT_UNREACHABLE:
      return "it does not answer";
    case RDMA_CM_EVENT_REJECTED:
      return "it has rejected the request";
    case RDMA_CM_EVENT_DISCONNECTED:
      return "it has disconnected";
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return "the device of this host was removed";
    default:
      return name();
  }
}

std::span<const std::byte> ConnectionEvent::private_data() const {
  const auto& parameters = raw_->param.conn;
  if (!parameters.private_data) return {};
  return {static_cast<const std::byte*>(parameters.private_data), parameters.private_data_len};
}

Id ConnectionEvent::take_request() {
  if (type() != RDMA_CM_EVENT_CONNECT_REQUEST || request_taken_) {
    throw std::logic_error("the event holds no connection request, or it was taken before");
  }
  // The flag is set after the allocation: if that throws, the destructor still rejects the request.
  Id id(std::make_shared<detail::IdState>(raw_.get().get_deleter().channel, raw_->id));
  id.state_->of_request = true;
  request_taken_ = true;
  return id;
}

// The descriptor is non-blocking, so that next() can wait with a deadline.
EventChannel::EventChannel(Backend backend) {
  const auto [table, kind] = detail::choose(backend);
  rdma_event_channel* made =
      check_pointer(table.create_event_channel(), "cannot create an event channel");
  state_ = std::make_shared<detail::EventChannelState>(table, kind, made);
  raw_ = made;
  detail::set_nonblocking(raw_->fd);
}

EventChannel::EventChannel(const Context& device) {
  const std::shared_ptr<detail::ContextState>& context = device.state_.get();
  rdma_event_channel* const made = context->table.create_event_channel_on(device.raw());
  if (!made && errno == EOPNOTSUPP) {
    fail(errno, fmt::format("rdma_cm finds the device {} by the address: use an address of it, and "
                            "name no device",
                            device.device_name()));
  }
  if (!made && errno == EINVAL) {
    fail(errno, fmt::format("the device {} makes progress only where the program polls: for "
                            "connections of its own it needs Progress::automatic",
                            device.device_name()));
  }
  check_pointer(made, "cannot create an event channel");
  state_ = std::make_shared<detail::EventChannelState>(context->table, context->backend, made);
  state_->device = context;
  raw_ = made;
  detail::set_nonblocking(raw_->fd);
}

std::optional<ConnectionEvent> EventChannel::next(Deadline deadline) const {
  while (true) {
    rdma_cm_event* event = nullptr;
    if (state_->table.get_cm_event(raw_, &event) == 0) return ConnectionEvent(state_, event);
    if (errno != EAGAIN && errno != EINTR) fail(errno, "cannot wait for a connection event");
    if (!detail::await_readable(raw_->fd, deadline)) return std::nullopt;
  }
}

// --- Ids -----------------------------------------------------------------------------------------

Id::Id(const EventChannel& channel, rdma_port_space space) {
  rdma_cm_id* made = nullptr;
  const auto& table = channel.state_->table;
  if (table.create_id(channel.raw_, &made, nullptr, space) < 0) {
    const int failed = errno;
    fail(failed, "cannot create a communication identifier" + detail::reason_for(table, failed));
  }
  state_ = std::make_shared<detail::IdState>(channel.state_, made);
  raw_ = made;
}

Id::Id(std::shared_ptr<detail::IdState> state) : state_(std::move(state)), raw_(state_->raw) {}

void Id::set_ipv6_only(bool only) const {
  int flag = only ? 1 : 0;
  check_minus_one(state_->channel->table.set_option(raw_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY,
                                                    &flag, sizeof flag),
                  "cannot set which address families may connect");
}

namespace {

// Linux's iWARP devices reject a connection by IPv4 to a listener for IPv6: they look for a device
// that has the IPv4 address in the form of IPv6.
bool has_iwarp_adapter() {
  return std::ranges::any_of(devices(Backend::system), [](const Device& device) {
    return device.transport() == IBV_TRANSPORT_IWARP;
  });
}

// Returns an errno. A socket for IPv6 also takes connections by IPv4, unless set_ipv6_only().
int bind_any(const detail::EventChannelState& channel, rdma_cm_id* id, std::uint16_t port) {
  const detail::Table& table = channel.table;
  sockaddr_storage any{};
  if (channel.backend != Backend::system || !has_iwarp_adapter()) {
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(any);
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    if (table.bind_addr(id, reinterpret_cast<sockaddr*>(&any)) == 0) return 0;
    if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) return errno;
    any = {};
  }
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(any);
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(port);
  return table.bind_addr(id, reinterpret_cast<sockaddr*>(&any)) == 0 ? 0 : errno;
}

}  // namespace

void Id::bind(const Address& address) const {
  const CallerExplains explains;
  if (address.host.empty()) {
    const int failed = bind_any(*state_->channel, raw_, address.port);
    if (failed) fail_bind(failed, address);
    return;
  }
  const Resolved resolved(state_->channel->table, address, RAI_PASSIVE);
  if (state_->channel->table.bind_addr(raw_, resolved.source()) != 0) {
    fail_bind(errno, address);
  }
}

void Id::listen(int backlog) const {
  const CallerExplains explains;
  if (state_->channel->table.listen(raw_, backlog) == 0) return;
  const int why = errno;
  fail(why, fmt::format("cannot listen on {}{}", local_address(), taken_port(why)),
       {.object = "address",
        .attribute = why == EADDRINUSE ? "port" : "",
        .requested = local_port()});
}

// This call exists only in the embedded provider; the system's table fails with EOPNOTSUPP.
void Id::adopt(int connection) const {
  check_minus_one(state_->channel->table.adopt(raw_, connection),
                  "cannot take over a TCP connection");
}

// As text, so that it goes through the same calls as an address of the program.
Address detail::numeric_address(Backend backend, const Address& address) {
  const Resolved resolved(choose(backend).table, address, 0);
  const sockaddr* const found = resolved.destination();
  const auto bytes = found->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::array<char, NI_MAXHOST> text{};
  const int failed = getnameinfo(found, static_cast<socklen_t>(bytes), text.data(), text.size(),
                                 nullptr, 0, NI_NUMERICHOST);
  if (failed != 0)
    fail(EINVAL, fmt::format("\"{}\" has an address of no known kind", address.host));
  return {text.data(), address.port};
}

void Id::resolve_address(const Address& peer, std::chrono::milliseconds timeout) const {
  const Resolved resolved(state_->channel->table, peer, 0);
  if (state_->channel->table.resolve_addr(raw_, nullptr, resolved.destination(),
                                          static_cast<int>(timeout.count())) != 0) {
    fail(errno, fmt::format("cannot resolve {} port {}", peer.host, peer.port));
  }
}

void Id::resolve_route(std::chrono::milliseconds timeout) const {
  check_minus_one(state_->channel->table.resolve_route(raw_, static_cast<int>(timeout.count())),
                  "cannot resolve the route");
}

// The context belongs to rdma_cm, so the handle does not close it.
Context Id::context() const {
  // rdma_cm names the device only once the address is resolved, or bound to one interface.
  if (!raw_->verbs) fail(ENODEV, "the identifier is not bound to a device yet");
  // Where the program has named the device, its context is used, and kept.
  const auto& device = state_->channel->device;
  if (device && device->raw == raw_->verbs) return Context(device);
  return Context(std::make_shared<detail::ContextState>(
      state_->channel->table, state_->channel->backend, raw_->verbs, /*own=*/false));
}

namespace {

// The kernel refuses each call for a request whose peer has left by EINVAL, which wrong arguments
// get as well. Only in the first case it has no state either to take the queue pair to.
int cause_of(int error, const detail::IdState& id) {
  if (error != EINVAL || !id.of_request) return error;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  int mask = 0;
  const bool left = id.channel->table.init_qp_attr(id.raw, &attributes, &mask) != 0;
  return left ? ECONNRESET : error;
}

}  // namespace

// The id destroys the queue pair; the handle keeps the id, and with it the channel, alive.
QueuePair Id::create_queue_pair(const ProtectionDomain& domain, const CompletionQueue& send,
                                const CompletionQueue& receive, const ibv_qp_cap& capacity,
                                bool signal_all) const {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = send.raw();
  attributes.recv_cq = receive.raw();
  attributes.cap = capacity;
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = signal_all;
  if (state_->channel->table.id_create_qp(raw_, domain.raw(), &attributes) != 0) {
    const int why = cause_of(errno, *state_.get());
    const auto reason = detail::explain_capacity(domain.context(), capacity, why);
    fail(why, "cannot create the queue pair of a communication identifier" + reason.text,
         reason.detail);
  }
  auto made = std::make_shared<detail::QueuePairState>();
  made->domain = domain.state_.get();
  made->send = send.state_.get();
  made->receive = receive.state_.get();
  made->id = state_.get();
  made->raw = raw_->qp;
  return QueuePair(std::move(made));
}

// The event of a failure has a description.
void Id::connect(const ConnectionParameters& parameters) const {
  const CallerExplains explains;
  rdma_conn_param raw = to_c(parameters);
  if (state_->channel->table.connect(raw_, &raw) == 0) return;
  fail(errno, fmt::format("cannot connect to {}", peer_address()),
       {.object = "connection", .peer = peer_address()});
}

void Id::accept(const ConnectionParameters& parameters) const {
  rdma_conn_param raw = to_c(parameters);
  // An id without a device has no request. rdma-core's rdma_accept(3) crashes on it.
  const bool has_device = raw_->verbs != nullptr;
  if (has_device && state_->channel->table.accept(raw_, &raw) == 0) return;
  const int why = has_device ? cause_of(errno, *state_.get()) : EINVAL;
  fail(
      why,
      fmt::format("cannot accept the connection{}",
                  why == EINVAL ? ": only an id of a connect request, with a queue pair, which was "
                                  "neither accepted nor rejected, can be accepted"
                                : ""),
      {.object = "connection", .peer = peer_address()});
}

void Id::reject(std::span<const std::byte> private_data) const {
  const rdma_conn_param raw = to_c({.private_data = private_data});
  check_minus_one(state_->channel->table.reject(raw_, raw.private_data, raw.private_data_len),
                  "cannot reject the connection");
}

void Id::establish() const {
  check_minus_one(state_->channel->table.establish(raw_), "cannot establish the connection");
}

void Id::disconnect() const {
  check_minus_one(state_->channel->table.disconnect(raw_), "cannot disconnect");
}

// Keep the new channel only after success: the id still refers to the old one otherwise.
EventChannel Id::new_channel() const {
  const detail::EventChannelState& channel = *state_->channel;
  return channel.device ? EventChannel(Context(channel.device)) : EventChannel(channel.backend);
}

void Id::migrate(const EventChannel& channel) {
  check_minus_one(state_->channel->table.migrate_id(raw_, channel.raw_),
                  "cannot move the identifier to another event channel");
  state_->channel = channel.state_.get();
}

int Id::initial_attributes(ibv_qp_state state, ibv_qp_attr& attributes) const {
  int mask = 0;
  attributes.qp_state = state;
  check_minus_one(state_->channel->table.init_qp_attr(raw_, &attributes, &mask),
                  "cannot get the attributes of a queue pair");
  return mask;
}

std::string Id::local_address() const {
  return detail::address_text(raw_->route.addr.src_storage);
}

std::string Id::peer_address() const {
  return detail::address_text(raw_->route.addr.dst_storage);
}

std::uint16_t Id::local_port() const {
  return ntohs(state_->channel->table.get_src_port(raw_));
}

}  // namespace weft::verbs
