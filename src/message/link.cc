#include "message/link.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstring>
#include <utility>

namespace weft::message::detail {
namespace {

// Frames that are posted and not completed; data frames are bounded by the peer's credits as well.
constexpr std::uint32_t send_slots = 64;
// Reads under way, of one connection.
constexpr std::uint8_t read_depth = 4;
// The deadline is ours to keep; this only ends what nobody waits for any more.
constexpr std::chrono::seconds long_enough{60};

RejectReason to_public(Reason reason) {
  switch (reason) {
    case Reason::version:
      return RejectReason::other_version;
    case Reason::malformed:
      return RejectReason::malformed;
    case Reason::nobody:
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

std::string in_words(const Rejection& rejection) {
  switch (rejection.reason) {
    case Reason::version:
      return fmt::format("it speaks version {} of the protocol, and not {}", rejection.version,
                         protocol_version);
    case Reason::malformed:
      return "it does not understand what was sent along";
    case Reason::nobody:
      return "nobody there takes requests";
    case Reason::too_many:
      return fmt::format("it has its {} connections", rejection.limit);
    case Reason::application:
      return "its application has refused";
    case Reason::none:
      break;
  }
  return "nobody listens there";
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
    // The peer has gone.
  }
}

Link::Link(LoopCore& loop, Handlers handlers, const Options& options)
    : user(options.user),
      loop_(&loop),
      handlers_(std::make_shared<const Handlers>(std::move(handlers))),
      keepalive_(options.keepalive),
      connect_timeout_(options.connect_timeout),
      said_(options.private_data.begin(), options.private_data.end()),
      limits_(loop.limits()) {
  if (said_.size() > max_private_data_bytes) {
    throw Error(EINVAL, fmt::format("private data may have {} bytes, and not {}",
                                    max_private_data_bytes, said_.size()));
  }
}

// --- Active --------------------------------------------------------------------------------------

void Link::start(const Address& peer) {
  peer_text_ = fmt::format("{} port {}", peer.host, peer.port);
  id_.emplace(loop_->events());
  id_->resolve_address(peer, long_enough);
  number_ = loop_->add(shared_from_this());
  loop_->set_id(*id_, number_);
  later(connect_timeout_, &Link::check_connected);
}

// Errors of a step towards the connection end the attempt.
template <typename Step>
void Link::attempt(const Step& step) {
  try {
    step();
  } catch (const Error& error) {
    end(Ending::By::failure, error.error_number(),
        error.error_number() == EMFILE ? explain(EMFILE) : error.what());
  }
}

void Link::on_event(const Event& event) {
  if (end_) return;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return attempt([&] { id_->resolve_route(long_enough); });
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return attempt([&] {
        set_up();
        const auto bytes = MessageGreeting{loop_->terms(), said_}.to_bytes();
        id_->connect(parameters(bytes));
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

void Link::fail_connecting(const Event& event) {
  if (was_established_) return end(Ending::By::cut, ECONNRESET, "");
  const int error = event.status < 0 ? -event.status : ECONNABORTED;
  if (event.type != RDMA_CM_EVENT_REJECTED) {
    return end(
        Ending::By::failure, error,
        fmt::format("no connection with {}: {} ({})", peer_text_, event.name, explain(error)));
  }
  const auto rejection = Rejection::parse(event.private_data);
  rejected_.emplace(
      to_public(rejection.reason),
      fmt::format("{} has rejected the connection: {}", peer_text_, in_words(rejection)),
      rejection.private_data);
  end(Ending::By::failure, ECONNREFUSED, rejected_->what());
}

// --- Passive -------------------------------------------------------------------------------------

void Link::accept(verbs::Id id, MessageGreeting greeting, Ticket ticket) {
  ticket_ = std::move(ticket);
  passive_ = true;
  id_.emplace(std::move(id));
  peer_text_ = id_->peer_address();
  number_ = loop_->add(shared_from_this());
  loop_->set_id(*id_, number_);
  attempt([&] {
    set_up();
    session_.emplace(loop_->terms(), greeting.terms);
    peer_said_ = std::move(greeting.private_data);
    const auto bytes = MessageGreeting{loop_->terms(), said_}.to_bytes();
    id_->accept(parameters(bytes));
    later(connect_timeout_, &Link::check_connected);
  });
}

// --- Both ----------------------------------------------------------------------------------------

verbs::ConnectionParameters Link::parameters(const std::vector<std::byte>& said) const {
  verbs::ConnectionParameters wanted;
  wanted.private_data = said;
  wanted.responder_resources = wanted.initiator_depth = read_depth;
  return wanted;
}

// The queue pair, with all its receives.
void Link::set_up() {
  device_ = loop_->device_for(id_->context());
  const std::uint32_t receives = limits_.credits + Credits::update_receives;
  const auto slices = std::min<std::uint32_t>(
      1 + max_pieces, static_cast<std::uint32_t>(device_->context.query().max_sge));
  queue_.emplace(device_->context.create_completion_queue(
      static_cast<int>(send_slots + read_depth + receives),
      {.channel = &device_->channel,
       .user_context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(number_))}));
  queue_pair_.emplace(id_->create_queue_pair(device_->domain, *queue_, *queue_,
                                             {.max_send_wr = send_slots + read_depth,
                                              .max_recv_wr = receives,
                                              .max_send_sge = slices,
                                              .max_recv_sge = 1,
                                              .max_inline_data = 0}));
  constexpr std::size_t header_bytes = send_slots * Frame::largest_bytes;
  // Not touched before it is used: an idle connection does not pay for it.
  header_memory_.reset(new std::byte[header_bytes]);
  headers_.emplace(device_->domain.register_memory(std::span(header_memory_.get(), header_bytes)));
  under_way_.resize(send_slots);
  for (std::uint32_t slot = send_slots; slot > 0; --slot) free_headers_.push_back(slot - 1);
  receives_.resize(receives);
  kept_.resize(receives);
  for (std::uint32_t slot = 0; slot < receives; ++slot) {
    receives_[slot] = device_->pool->take_block();
    post_receive(slot);
  }
  if (end_) throw Error(end_->ending.error_number, end_->what);
}

void Link::on_established(const Event& event) {
  if (was_established_) return;
  if (!passive_) {
    auto read = MessageGreeting::parse(event.private_data);
    if (!read.greeting) {
      return end(Ending::By::failure, EPROTO,
                 fmt::format("{} accepted the connection in another protocol", peer_text_));
    }
    session_.emplace(loop_->terms(), read.greeting->terms);
    peer_said_ = std::move(read.greeting->private_data);
  }
  was_established_ = true;
  state_ = State::established;
  heard_ = TimePoint::clock::now();
  if (keepalive_.count() > 0) later(keepalive_, &Link::check_alive);
  loop_->ready(shared_from_this());  // something may have come before
  const auto handlers = handlers_;
  Connection connection(shared_from_this());
  if (handlers->established) handlers->established(connection);
  wake_waiters();
}

// The work is not done where the connection has ended before.
void Link::later(std::chrono::milliseconds delay, void (Link::*work)()) {
  loop_->after(delay, [weak = weak_from_this(), work] {
    const auto link = weak.lock();
    if (link && link->loop_ && !link->end_) (*link.*work)();
  });
}

void Link::check_connected() {
  if (was_established_) return;
  end(Ending::By::failure, ETIMEDOUT,
      fmt::format("no connection with {} within {} ms", peer_text_, connect_timeout_.count()));
}

void Link::check_alive() {
  const auto silent = TimePoint::clock::now() - heard_;
  if (silent >= keepalive_) {
    if (asked_) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(silent).count();
      return end(Ending::By::failure, ETIMEDOUT,
                 fmt::format("{} has not given a sign of life for {} ms", peer_text_, ms));
    }
    asked_ = true;
    session_->ask();
    pump();
  }
  later(keepalive_, &Link::check_alive);
}

}  // namespace weft::message::detail
