#include "cm/service_port.h"

#include <algorithm>
#include <cerrno>

#include "base/kernel_random.h"
#include "device/addresses.h"
#include "device/limits.h"

namespace weft::cm {
namespace {

using device::DatagramRoute;
using wire::ServiceQuery;

// The pause between repetitions doubles each time, within these limits.
constexpr std::uint64_t shortest_pause_ns = 20'000'000;
constexpr std::uint64_t longest_pause_ns = 1'000'000'000;
// How many answers are kept, to be sent again in case they were lost.
constexpr std::size_t kept_replies = 1024;

std::vector<std::byte> bytes_of(const ServiceQuery& query) {
  std::vector<std::byte> bytes(query.size());
  query.emit(bytes);
  return bytes;
}

bool same_end(const sockaddr_storage& a, const sockaddr_storage& b) {
  return device::same_host_address(a, b) && device::port_of(a) == device::port_of(b);
}

}  // namespace

ServicePort::ServicePort(device::Device& device) : device_(device) {}

int ServicePort::open(device::Device& device, const Plan& plan,
                      std::shared_ptr<ServicePort>& made) {
  std::shared_ptr<ServicePort> opened(new ServicePort(device));
  const device::DatagramSocket::Plan socket{
      .address = plan.address,
      .shared = plan.reuse_address,
      .both_families = !plan.ipv6_only,
      // Weak, since the port owns the socket, which owns this function.
      .arrived = [weak = std::weak_ptr(opened)](const DatagramRoute& route, Bytes packet) {
        if (const auto self = weak.lock()) self->arrived(route, packet);
      }};
  const int failed = device::DatagramSocket::open(device.engine(), socket, opened->socket_);
  if (failed == 0) made = std::move(opened);
  return failed;
}

void ServicePort::close() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  requested_ = nullptr;
  question_.reset();
  close_socket_if_done(lock);
}

// Peers take answers from this port only. The socket is closed without the lock: its close() waits
// for a callback that may want the lock.
void ServicePort::close_socket_if_done(std::unique_lock<std::mutex>& lock) {
  if (!closing_ || closed_ || replies_.size() > answered_.size()) return;
  closed_ = true;
  lock.unlock();
  socket_->close();
}

void ServicePort::arrived(const DatagramRoute& route, Bytes packet) {
  const auto query = ServiceQuery::parse(packet);
  if (!query) {
    ++device_.refusals().queries_malformed;
    return;
  }
  if (query->kind == ServiceQuery::Kind::request) on_request(route, *query);
  if (query->kind == ServiceQuery::Kind::reply) on_reply(route, *query);
}

// --- Answering -----------------------------------------------------------------------------------

ServicePort::Key ServicePort::key_of(const Request& request) {
  return {std::to_array(device::gid_of(request.route.source).raw),
          device::port_of(request.route.source), request.identification};
}

void ServicePort::listen(std::size_t max_waiting, Requested requested) {
  const std::lock_guard lock(mutex_);
  max_waiting_ = max_waiting;
  requested_ = std::move(requested);
}

// A request is reported once, however often it is repeated.
void ServicePort::on_request(const DatagramRoute& route, const ServiceQuery& query) {
  const Request request{
      route, query.identification, {query.private_data.begin(), query.private_data.end()}};
  std::unique_lock lock(mutex_);
  const auto known = replies_.find(key_of(request));
  if (known != replies_.end()) {
    // Repeated: either the answer was lost, or the program has not answered yet.
    if (!known->second.empty()) send_back(route, known->second);
    return;
  }
  // The peer takes this answer as final only after a while: see on_reply().
  if (!requested_) {
    return send_back(route, bytes_of({.kind = ServiceQuery::Kind::reply,
                                      .status = Status::unsupported,
                                      .identification = query.identification}));
  }
  if (waiting_ >= max_waiting_) {
    ++device_.refusals().queries_ignored;
    return;
  }
  ++waiting_;
  // No packet yet, so that repetitions are recognized and not reported again.
  replies_[key_of(request)] = {};
  const Requested requested = requested_;
  lock.unlock();
  if (requested(request)) return;
  lock.lock();
  --waiting_;
  replies_.erase(key_of(request));
  // close() waits for callbacks, and this is one.
  device_.engine().call_at(device::sys::now_ns(), shared_from_this());
}

void ServicePort::end_wait() {
  const std::lock_guard lock(mutex_);
  --waiting_;
}

// A request that was answered already, or whose answer is forgotten, is left alone.
void ServicePort::reply(const Request& request, const Answer& answer) {
  std::unique_lock lock(mutex_);
  const auto waiting = replies_.find(key_of(request));
  if (waiting == replies_.end() || !waiting->second.empty()) return;
  waiting->second = bytes_of({.kind = ServiceQuery::Kind::reply,
                              .status = answer.status,
                              .identification = request.identification,
                              .queue_pair = answer.queue_pair,
                              .queue_key = answer.queue_key,
                              .private_data = answer.private_data});
  send_back(request.route, waiting->second);
  answered_.push_back(waiting->first);
  forget_old_replies();
  close_socket_if_done(lock);
}

void ServicePort::forget_old_replies() {
  for (; answered_.size() > kept_replies; answered_.pop_front()) replies_.erase(answered_.front());
}

// Sends from the address at which the request arrived, to its sender. A lost packet is no error, as
// the request will be repeated.
void ServicePort::send_back(const DatagramRoute& route, Bytes packet) {
  if (closed_) return;
  const DatagramRoute back{.source = route.destination, .destination = route.source};
  (void)socket_->send(back, 0, packet);
}

// --- Asking --------------------------------------------------------------------------------------

void ServicePort::ask(const DatagramRoute& route, unsigned interface_index, Bytes private_data,
                      std::uint64_t timeout_ns, Answered answered) {
  // Random, so that a late reply to an earlier question on this port, or a forged one, does not
  // match.
  const auto identification = random_word();
  const std::uint64_t now_ns = device::sys::now_ns();
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    question_ = Question{.route = route,
                         .interface_index = interface_index,
                         .packet = bytes_of({.kind = ServiceQuery::Kind::request,
                                             .identification = identification,
                                             .private_data = private_data}),
                         .identification = identification,
                         .pause_ns = shortest_pause_ns,
                         .begin_ns = now_ns,
                         .end_ns = now_ns + timeout_ns,
                         .answered = std::move(answered)};
  }
  on_deadline();
}

// Also sends the first packet.
void ServicePort::on_deadline() {
  std::unique_lock lock(mutex_);
  if (!question_) return close_socket_if_done(lock);
  const std::uint64_t now_ns = device::sys::now_ns();
  if (now_ns >= question_->end_ns) {
    const Answered answered = std::move(question_->answered);
    question_.reset();
    lock.unlock();
    return answered(std::nullopt);
  }
  (void)socket_->send(question_->route, question_->interface_index, question_->packet);
  const std::uint64_t next_ns = std::min(now_ns + question_->pause_ns, question_->end_ns);
  question_->pause_ns = std::min(question_->pause_ns * 2, longest_pause_ns);
  device_.engine().call_at(next_ns, shared_from_this());
}

// A late reply to an earlier request, or one from elsewhere, is ignored.
void ServicePort::on_reply(const DatagramRoute& route, const ServiceQuery& query) {
  std::unique_lock lock(mutex_);
  const bool ours = question_ && question_->identification == query.identification &&
                    same_end(route.source, question_->route.destination);
  if (!ours) return;
  // The server may be about to listen, so that early refusals are ignored, as with TCP.
  const bool early = device::sys::now_ns() < question_->begin_ns + device::limits::refused_ns;
  if (query.status == Status::unsupported && early) return;
  const Answered answered = std::move(question_->answered);
  question_.reset();
  lock.unlock();
  answered(Answer{.status = query.status,
                  .queue_pair = query.queue_pair,
                  .queue_key = query.queue_key,
                  .private_data = {query.private_data.begin(), query.private_data.end()}});
}

}  // namespace weft::cm
