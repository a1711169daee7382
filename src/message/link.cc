// Class Link: this file connects, link_io.cc makes progress, link_user.cc has the application's
// calls, and link_end.cc the calls into the application and the end.
// Connecting: from the first step to `established`, on both sides.
#include "message/link.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstring>
#include <utility>

#include "verbs/host_lookup.h"

namespace weft::message::detail {
namespace {

// Timeout of each step of rdma_cm. Options::connect_timeout is kept by a timer of the loop, so this
// one only has to be long enough.
constexpr std::chrono::seconds step_timeout{60};

RejectReason to_public(Reason reason) {
  switch (reason) {
    case Reason::version:
      return RejectReason::other_version;
    case Reason::malformed:
      return RejectReason::malformed;
    case Reason::no_handler:
      return RejectReason::no_handler;
    case Reason::too_many:
      return RejectReason::too_many_connections;
    case Reason::application:
      return RejectReason::refused;
    case Reason::none:
      break;
  }
  return RejectReason::nobody_listens;
}

// The reason as the end of a sentence about the peer.
std::string describe(const Rejection& rejection) {
  switch (rejection.reason) {
    case Reason::version:
      return fmt::format("it speaks version {} of the protocol, and not {}", rejection.version,
                         protocol_version);
    case Reason::malformed:
      return "it does not understand our private data";
    case Reason::no_handler:
      return "its listener has no handler for requests";
    case Reason::too_many:
      return fmt::format("it has reached its limit of {} connections", rejection.limit);
    case Reason::application:
      return "its application has rejected it";
    case Reason::none:
      break;
  }
  return "no program listens there";
}

}  // namespace

std::string explain(int error_number) {
  std::string text = std::strerror(error_number);
  if (error_number != EMFILE) return text;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return fmt::format("{}: RLIMIT_NOFILE is {} (ulimit -n)", text, limit.rlim_cur);
}

void reject_quietly(const verbs::Id& id, const Rejection& rejection) noexcept {
  try {
    id.reject(rejection.to_bytes());
  } catch (const Error&) {
    // The peer has disconnected already.
  }
}

Link::Link(LoopCore& loop, Handlers handlers, const Options& options)
    : user(options.user),
      loop_(&loop),
      handlers_(std::make_shared<const Handlers>(std::move(handlers))),
      limits_(loop.limits()),
      connect_options_{options.connect_timeout,
                       {options.private_data.begin(), options.private_data.end()}},
      early_(options.queue_while_connecting),
      liveness_(options.keepalive) {
  const std::size_t bytes = options.private_data.size();
  if (bytes > max_private_data_bytes) {
    throw Error(
        EINVAL,
        fmt::format("private data may have {} bytes, and not {}", max_private_data_bytes, bytes),
        {.object = "connection",
         .attribute = "private_data",
         .requested = bytes,
         .limit = max_private_data_bytes});
  }
  const auto check = [](std::chrono::milliseconds time, const char* name) {
    if (time.count() >= 0) return;
    throw Error(EINVAL, fmt::format("{} of a connection must not be negative", name),
                {.object = "connection", .attribute = name});
  };
  check(options.connect_timeout, "connect_timeout");
  check(options.keepalive, "keepalive");
}

// --- Active --------------------------------------------------------------------------------------

// Runs one step of connecting; an Error ends the attempt.
template <typename Step>
void Link::try_step(const Step& step) {
  try {
    step();
  } catch (const Error& error) {
    fail(error.error_number(),
         error.error_number() == EMFILE ? explain(EMFILE) : without_cause(error), error.detail());
  }
}

// The id's events come to the loop, which finds this link by the id. A name is looked up first,
// which the loop waits for as for any descriptor.
void Link::start(const Address& peer) {
  peer_.name = fmt::format("{} port {}", peer.host.empty() ? "this host" : peer.host, peer.port);
  verbs::Id id(loop_->events());
  auto lookup = std::make_shared<verbs::detail::HostLookup>(loop_->backend(), peer);
  const bool at_once = lookup->takes_no_time();
  if (at_once) id.resolve_address(lookup->take(), step_timeout);
  transport_.set_id(std::move(id));
  number_ = loop_->add(shared_from_this());
  try {
    loop_->set_id(*transport_.id(), number_);
    // One timer for all steps: the application's timeout is for the whole attempt.
    call_after(connect_options_.timeout, &Link::check_connected);
    if (at_once) return;
    loop_->when_readable(lookup->fd(), [weak = weak_from_this(), lookup] {
      const auto link = weak.lock();
      if (!link || !link->loop_ || link->end_) return;
      link->try_step([&] { link->transport_.id()->resolve_address(lookup->take(), step_timeout); });
    });
  } catch (...) {
    // The caller gets no handle, so the loop must not call the handlers, which it may destroy.
    loop_->remove(number_);
    throw;
  }
}

// Events after the end are ignored; finish() disconnects.
void Link::on_event(const Event& event) {
  if (end_) return;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return try_step([&] { transport_.id()->resolve_route(step_timeout); });
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return try_step([&] {
        create_queue_pair();
        ask();
      });
    case RDMA_CM_EVENT_ESTABLISHED:
      return on_established(event);
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      if (was_established_) return end(Ending::By::cut, ECONNRESET, "");
      return fail_connecting(event);
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return;
    default:
      return fail_connecting(event);
  }
}

// Ends the attempt with an error text that names the peer and the event. A rejection by a peer of
// this protocol also carries a reason and private data.
void Link::fail_connecting(const Event& event) {
  if (was_established_) return end(Ending::By::cut, ECONNRESET, "");
  const int error = event.status < 0 ? -event.status : ECONNABORTED;
  if (event.type != RDMA_CM_EVENT_REJECTED && error != ECONNREFUSED) {
    return fail(error, fmt::format("no connection with {}: {} ({})", peer_.name, event.name,
                                   explain(error)));
  }
  fail_rejected(Rejection::parse(event.private_data));
}

// The kernel's siw makes its TCP connection within rdma_connect(3), so that a port without a
// listener is an error of the call. Other devices report it by an event.
void Link::ask() {
  const auto bytes = MessageGreeting{loop_->terms(), connect_options_.private_data}.to_bytes();
  try {
    transport_.id()->connect(parameters(bytes));
  } catch (const Error& error) {
    if (error.error_number() != ECONNREFUSED) throw;
    fail_rejected({});
  }
}

void Link::fail_rejected(const Rejection& rejection) {
  const auto text =
      fmt::format("{} has rejected the connection: {}", peer_.name, describe(rejection));
  end_.set_rejected(Rejected(to_public(rejection.reason), text, rejection.private_data,
                             {.object = "connection", .peer = peer_.name}));
  fail(ECONNREFUSED, text);
}

// --- Passive -------------------------------------------------------------------------------------

// The receives are posted, and the session exists, before the acceptance is sent: the peer may send
// as soon as it has it.
void Link::accept(verbs::Id id, MessageGreeting greeting, CountedConnection counted) {
  if (!loop_ || end_) return;  // disconnected before its loop came to this
  counted_ = std::move(counted);
  transport_.set_id(std::move(id));
  peer_.name = transport_.id()->peer_address();
  number_ = loop_->add(shared_from_this());
  loop_->set_id(*transport_.id(), number_);
  try_step([&] {
    create_queue_pair();
    session_.emplace(loop_->terms(), greeting.terms);
    peer_.private_data = std::move(greeting.private_data);
    const auto bytes = MessageGreeting{loop_->terms(), connect_options_.private_data}.to_bytes();
    transport_.id()->accept(parameters(bytes));
    call_after(connect_options_.timeout, &Link::check_connected);
  });
}

// --- Both ----------------------------------------------------------------------------------------

verbs::ConnectionParameters Link::parameters(const std::vector<std::byte>& greeting) {
  verbs::ConnectionParameters wanted;
  wanted.private_data = greeting;
  wanted.responder_resources = wanted.initiator_depth = MessageFetcher::max_reads;
  return wanted;
}

// All receives are posted before the peer can know of the queue pair: there is no
// receiver-not-ready on iWARP.
void Link::create_queue_pair() {
  const std::uint32_t receives = limits_.credits + Credits::update_receives;
  transport_.create(loop_->device_for(transport_.id()->context()),
                    {.sends = SendSlots::count,
                     .receives = receives,
                     .reads = MessageFetcher::max_reads,
                     .slices = 1 + max_pieces},
                    reinterpret_cast<void*>(static_cast<std::uintptr_t>(number_)));
  send_slots_.open(transport_.device(), transport_.max_slices());
  receive_slots_.open(*transport_.device()->pool, receives);
  for (std::uint32_t slot = 0; slot < receives; ++slot) post_receive(slot);
  // post_receive() reports a failure through fail(), which here must end the step as well.
  if (end_) throw Error(end_.error_number(), end_.text());
}

// Reads the peer's terms from the acceptance; the passive side has them from the request.
void Link::on_established(const Event& event) {
  if (was_established_) return;
  if (!session_) {
    auto read = MessageGreeting::parse(event.private_data);
    if (!read.greeting) {
      return fail(EPROTO,
                  fmt::format("{} accepted the connection in another protocol", peer_.name));
    }
    session_.emplace(loop_->terms(), read.greeting->terms);
    peer_.private_data = std::move(read.greeting->private_data);
  }
  was_established_ = true;
  state_ = State::established;
  liveness_.received(steady_now());
  if (liveness_.is_enabled()) call_after(liveness_.interval(), &Link::check_alive);
  loop_->ready(shared_from_this());  // frames may have arrived before this event
  send_early();
  const auto handlers = handlers_;
  Connection connection(shared_from_this());
  if (handlers->established) handlers->established(connection);
  waiters_.resume_ready();
}

// Calls `work` after the delay, unless the connection has ended by then.
void Link::call_after(std::chrono::milliseconds delay, void (Link::*work)()) {
  loop_->after(delay, [weak = weak_from_this(), work] {
    const auto link = weak.lock();
    if (link && link->loop_ && !link->end_) (*link.*work)();
  });
}

// The timer of Options::connect_timeout.
void Link::check_connected() {
  if (was_established_) return;
  fail(ETIMEDOUT, fmt::format("no connection with {} within {} ms", peer_.name,
                              connect_options_.timeout.count()));
}

// The timer of Options::keepalive, once in each interval. A peer that fetches a long message may
// complete nothing else meanwhile.
void Link::check_alive() {
  // It may be here already: a callback of another connection can take longer than the interval.
  if (was_established_ && poll() > 0 && loop_) loop_->ready(shared_from_this());
  if (!loop_ || end_) return;
  const auto now = steady_now();
  liveness_.accessed(transport_.accessed_bytes(), now);
  switch (liveness_.check(now)) {
    case Liveness::Action::give_up:
      return fail(ETIMEDOUT, fmt::format("the device of {} gave no sign of life for {} ms",
                                         peer_.name, liveness_.silent_for(now).count()));
    case Liveness::Action::probe:
      // If this fails, the connection has ended; an event will report it.
      (void)transport_.post_probe();
      break;
    case Liveness::Action::none:
      break;
  }
  call_after(liveness_.interval(), &Link::check_alive);
}

}  // namespace weft::message::detail
