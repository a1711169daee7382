#include "interpose/accept_queue.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "interpose/accept_thread.h"
#include "interpose/address.h"
#include "interpose/device.h"
#include "interpose/process.h"
#include "interpose/shared_listener.h"
#include "interpose/socket.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// A process that has not forked within two seconds of the first client is unlikely to do so later.
// From then on clients are connected ahead.
constexpr unsigned rechecks_before_ahead = 40;
// The same for a process that has accepted clients elsewhere, or whose parent had: if it serves by
// several processes, it has forked by then. An FTP server listens anew for each file. It accepts
// the client there only after the client has connected and has asked for the file.
constexpr unsigned rechecks_of_a_server = 1;
constinit std::atomic<bool> has_accepted{false};
// And for one that has connected elsewhere and listens for a single client: an FTP client of whose
// files the server opens the connections, and which may accept only once the server says so.
constinit std::atomic<bool> has_connected{false};
// For 200 ms another process may accept a client that may be our own.
constexpr unsigned rechecks_before_own = 4;

// A process that has not forked within 100 ms of listen(2) is announced to its host before the
// first client comes.
constexpr unsigned rechecks_before_announcing = 2;

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return next::poll(&entry, 1, 0) > 0;
}

}  // namespace

AcceptQueue::AcceptQueue(int kernel, int backlog, const stream::Options& options,
                         std::weak_ptr<Socket> socket)
    : kernel_(kernel),
      port_(port_of(local_name_of(kernel))),
      backlog_(static_cast<std::size_t>(std::clamp(backlog, 1, SOMAXCONN))),
      options_(options),
      socket_(std::move(socket)),
      defers_at_first_(defer_silent_clients(kernel)),
      checks_before_announcing_(may_leave_tcp() ? rechecks_before_announcing : 0) {}

std::shared_ptr<AcceptQueue> AcceptQueue::start(int kernel, int backlog,
                                                const stream::Options& options,
                                                std::weak_ptr<Socket> socket) {
  auto made = std::make_shared<AcceptQueue>(kernel, backlog, options, std::move(socket));
  const std::lock_guard lock(made->mutex_);
  made->cookie_ = AcceptThread::instance().add(kernel, made);
  made->watch_if_room();
  return made;
}

bool AcceptQueue::is_open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

bool AcceptQueue::is_shared() const {
  const std::lock_guard lock(mutex_);
  return shared_;
}

bool AcceptQueue::uses_kernel_queue() const {
  const std::lock_guard lock(mutex_);
  return open_ && !accepts_ahead_;
}

// With mutex_ held. Asks AcceptThread for the next client and the next request, unless the backlog
// is full, one waits already, or no descriptor is left.
void AcceptQueue::watch_if_room() {
  if (!open_ || connected_.size() >= backlog_ || shortage_ != 0) return;
  if (requests_ && !requests_watched_) {
    requests_watched_ = true;
    AcceptThread::instance().watch_requests(requests_->fd(), cookie_);
  }
  if (watched_ || client_waits_ || lacks_room_ || direct_.is_on()) return;
  watched_ = true;
  AcceptThread::instance().watch(kernel_, cookie_);
}

// A closed queue is shown as readable, so that waiting threads call accept(2) and get EINVAL.
void AcceptQueue::show(bool another) {
  if (const auto socket = socket_.lock()) {
    const bool any = !connected_.empty() || client_waits_ || shortage_ != 0 || !open_;
    socket->show_clients(any, another);
  }
}

void AcceptQueue::accept_ahead() {
  const std::lock_guard lock(mutex_);
  begin_accepting_ahead();
}

// With mutex_ held.
void AcceptQueue::begin_accepting_ahead() {
  if (shared_ || accepts_ahead_) return;
  accepts_ahead_ = true;
  stop_deferring_at_first();
  announce();
  client_waits_ = false;  // watch_if_room() has it reported once more
  watch_if_room();
  show(false);
}

// With mutex_ held. AcceptThread waits for silent clients itself.
void AcceptQueue::stop_deferring_at_first() {
  if (std::exchange(defers_at_first_, false)) stop_deferring(kernel_);
}

// With mutex_ held. Only a program that never blocks in accept(2) does this: a thread that blocks
// there waits for the visible socket.
void AcceptQueue::begin_accepting_directly() {
  const auto socket = socket_.lock();
  if (shared_ || !accepts_ahead_ || !socket || !socket->show_kernel_queue(true)) return;
  direct_.begin(kernel_);
  AcceptThread::instance().unwatch(kernel_, cookie_);
  watched_ = false;
}

// With mutex_ held.
void AcceptQueue::end_accepting_directly() {
  if (!direct_.is_on()) return;
  direct_.end(kernel_);
  if (const auto socket = socket_.lock()) (void)socket->show_kernel_queue(false);
  watch_if_room();
}

bool AcceptQueue::accepts_directly() const {
  const std::lock_guard lock(mutex_);
  return direct_.is_on() && connected_.empty();
}

void AcceptQueue::note_accepted() {
  has_accepted.store(true, std::memory_order_relaxed);
}

void AcceptQueue::note_accepted_directly() {
  note_accepted();
  const std::lock_guard lock(mutex_);
  direct_.note_accepted();
}

void AcceptQueue::stop_accepting_directly() {
  const std::lock_guard lock(mutex_);
  end_accepting_directly();
}

void AcceptQueue::add_other(Descriptor connection, const FirstBytes& found) {
  const std::lock_guard lock(mutex_);
  end_accepting_directly();
  add_client(std::move(connection), found.protocol, refusal_of(found));
  if (!connected_.empty()) show(true);
}

unsigned AcceptQueue::rechecks_before_taking() const {
  const bool awaits_one = backlog_ == 1 && has_connected;
  return has_accepted || awaits_one ? rechecks_of_a_server : rechecks_before_ahead;
}

void AcceptQueue::before_connect(std::uint16_t port) {
  has_connected.store(true, std::memory_order_relaxed);
  for (const auto& queue : all_accept_queues()) {
    queue->accept_ahead();
    if (queue->port_ != port) continue;
    queue->stop_accepting_directly();
    queue->expect_own_client();
  }
}

// One more client is to be taken ahead of accept(2), even from a shared socket: recheck() takes it
// if no other process has accepted it in time.
void AcceptQueue::expect_own_client() {
  const std::lock_guard lock(mutex_);
  if (accepts_ahead_) return;
  ++own_clients_;
}

void AcceptQueue::share() {
  const std::lock_guard lock(mutex_);
  begin_sharing();
}

// The mutex is that of the parent, whose memory this is: AcceptThread does not find the socket
// blocking before it knows that it is shared.
void AcceptQueue::pass(bool blocks) {
  const std::lock_guard lock(mutex_);
  passed_ = true;
  set_listener_blocking(kernel_, blocks);
}

// With mutex_ held.
void AcceptQueue::share_if_passed() {
  if (passed_) begin_sharing();
}

// With mutex_ held. Clients of the other processes must not look for a shortcut to this one, so
// their streams would stay on TCP. The kernel's own connections are faster than that.
void AcceptQueue::begin_sharing() {
  if (shared_) return;
  end_accepting_directly();
  shared_ = true;
  accepts_ahead_ = false;
  checks_before_announcing_ = 0;
  stop_announcing();
  if (open_) offer_kernel(OfferedFor::all_connections);
}

// With mutex_ held. Lets programs on this host leave their connections to the kernel.
void AcceptQueue::offer_kernel(OfferedFor kind) {
  if (may_leave_to_kernel()) AcceptThread::instance().offers().offer(cookie_, kernel_, kind);
}

// With mutex_ held. Lets peers on this host find this process, whose kernel socket the device does
// not know otherwise. Without it the connections stay on TCP. Peers that have found it connect
// without TCP from then on, and their requests come to on_requests() by themselves.
void AcceptQueue::announce() {
  if (checks_before_announcing_ == 0) return;
  checks_before_announcing_ = 0;
  offer_kernel(OfferedFor::brief_connections);
  try {
    open_requests();
    requests_->adopt(copy_high(kernel_).release());
    announced_ = true;
    serve_host(*requests_, true);
  } catch (const Error&) {
    // No descriptor is left for it: the connections stay on TCP.
  }
}

// With mutex_ held. A request that a peer has just sent still comes.
void AcceptQueue::stop_announcing() {
  if (std::exchange(announced_, false)) serve_host(*requests_, false);
}

// With mutex_ held. Throws Error.
void AcceptQueue::open_requests() {
  if (requests_) return;
  requests_.emplace(stream::Listener::for_connections(options_));
  requests_watched_ = true;
  AcceptThread::instance().add_requests(requests_->fd(), cookie_);
}

// --- Clients -------------------------------------------------------------------------------------

void AcceptQueue::on_client_waiting() {
  const auto socket = socket_.lock();  // keeps the kernel socket open
  const std::lock_guard lock(mutex_);
  watched_ = false;
  share_if_passed();
  if (!socket || !open_ || direct_.is_on()) return;
  if (accepts_ahead_) return take_from_kernel();
  client_waits_ = true;
  rechecks_ = 0;
  show(true);
}

// With mutex_ held. Takes the clients that wait, each as it comes; the program is told once. Where
// too many clients have not finished their requests, the next one waits in the kernel's queue until
// recheck() finds room.
void AcceptQueue::take_from_kernel() {
  const std::size_t before = connected_.size();
  while (take_one_from_kernel()) {
  }
  watch_if_room();
  if (connected_.size() != before || shortage_ != 0) show(true);
}

// With mutex_ held. Clients stay in the queues of the kernel and of the device while there is no
// descriptor for them. The timer tries again, and so does accept(2), which reports the error.
void AcceptQueue::note_error(int error) {
  if (error == EMFILE || error == ENFILE) shortage_ = error;
}

// With mutex_ held.
void AcceptQueue::retry() {
  if (std::exchange(shortage_, 0) == 0) return;
  share_if_passed();
  if (requests_) take_requests();
  if (accepts_ahead_ && shortage_ == 0) take_from_kernel();
  watch_if_room();
  show(false);
}

// With mutex_ held, so this must not block, as the kernel's socket of several processes may. False
// if no more can be taken now.
bool AcceptQueue::take_one_from_kernel() {
  if (direct_.is_on() || connected_.size() >= backlog_) return false;
  lacks_room_ = !AcceptThread::instance().make_room();
  if (lacks_room_) return false;
  Descriptor connection = shared_
                              ? accept_at_once(kernel_)
                              : Descriptor(next::accept4(kernel_, nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection.valid()) {
    note_error(errno);
    return false;
  }
  connection = move_high(std::move(connection));
  if (own_clients_ > 0) --own_clients_;
  const FirstBytes found = look_at_first_bytes(connection.get());
  add_client(std::move(connection), found.protocol, refusal_of(found));
  return !shared_;
}

void AcceptQueue::add_arriving(Descriptor connection) {
  const std::lock_guard lock(mutex_);
  if (!open_) return;
  AcceptThread::instance().await_first_bytes(std::move(connection), shared_from_this(),
                                             defers_at_first_);
}

bool AcceptQueue::make_room_for_arriving() {
  return AcceptThread::instance().make_room();
}

void AcceptQueue::on_arrived(Descriptor connection, Protocol protocol, Refusal why) {
  const std::lock_guard lock(mutex_);
  const std::size_t before = connected_.size();
  add_client(std::move(connection), protocol, why);
  watch_if_room();
  if (connected_.size() != before) show(true);
}

// With mutex_ held. A client that is neither kept nor given away is refused: it is closed here, and
// counted.
void AcceptQueue::add_client(Descriptor connection, Protocol protocol, Refusal why) {
  if (!open_ || protocol == Protocol::wakes) return;
  const bool suggested = direct_.suggested_by(protocol);
  try {
    if (protocol == Protocol::unknown) {
      AcceptThread::instance().await_first_bytes(std::move(connection), shared_from_this());
    } else if (protocol == Protocol::stream) {
      give_to_device(std::move(connection));
    } else if (protocol == Protocol::plain || protocol == Protocol::agreed) {
      auto client = protocol == Protocol::plain ? serve_plain(std::move(connection), why)
                                                : serve_agreed(std::move(connection));
      if (client) connected_.push_back(std::move(*client));
      if (suggested) begin_accepting_directly();
    } else {
      shut(connection);
      count_refusal(why);
    }
  } catch (const std::exception&) {
    count_refusal(Refusal::out_of_descriptors);  // or of memory
  }
}

// With mutex_ held. The device reads the request in this call if it is complete; else it reports it
// later: on_requests().
void AcceptQueue::give_to_device(Descriptor connection) {
  open_requests();
  requests_->adopt(connection.release());
  take_requests();
}

void AcceptQueue::on_requests() {
  const std::lock_guard lock(mutex_);
  requests_watched_ = false;
  share_if_passed();
  if (requests_) take_requests();
  watch_if_room();
}

// With mutex_ held. Completes connections in the order of the queue, in which the clients get their
// replies. A request cannot go back into its queue, so it is taken when there are descriptors.
void AcceptQueue::take_requests() {
  bool another = false;
  while (connected_.size() < backlog_ && shortage_ == 0 && is_readable(requests_->fd())) {
    try {
      HiddenPair pair;
      auto request = requests_->next(Deadline::now());
      if (!request) break;
      connected_.push_back(accept_stream(std::move(pair), std::move(*request), options_));
      another = true;
    } catch (const Error& error) {
      note_error(error.code().value());  // if it is another one, the client has disconnected
    } catch (const std::exception&) {
      // No memory is left for the client.
    }
  }
  if (another || shortage_ != 0) show(true);
}

// With mutex_ held.
void AcceptQueue::close_requests() {
  if (!requests_) return;
  AcceptThread::instance().remove_requests(requests_->fd());
  requests_.reset();
}

// A client that still waits is left to accept(2) at first, then taken here if it may be our own or
// if the process does not seem to fork.
bool AcceptQueue::recheck(bool timer_expired) {
  const std::lock_guard lock(mutex_);
  if (!open_) return false;
  share_if_passed();
  if (timer_expired && direct_.is_on() && !direct_.is_used()) end_accepting_directly();
  if (timer_expired && checks_before_announcing_ == 1) announce();
  if (timer_expired && checks_before_announcing_ > 1) --checks_before_announcing_;
  if (timer_expired && lacks_room_) {
    lacks_room_ = false;
    watch_if_room();
  }
  if (timer_expired) retry();
  const bool repeats = checks_before_announcing_ > 0 || lacks_room_ || shortage_ != 0;
  if (!client_waits_) return repeats || direct_.is_on();
  if (timer_expired) ++rechecks_;
  if (!is_readable(kernel_)) {
    client_waits_ = false;
    own_clients_ = 0;
  } else if (own_clients_ > 0 && rechecks_ >= rechecks_before_own) {
    client_waits_ = false;
    take_from_kernel();
  } else if (!shared_ && rechecks_ >= rechecks_before_taking()) {
    accepts_ahead_ = true;
    stop_deferring_at_first();
  }
  if (accepts_ahead_) client_waits_ = false;  // on_client_waiting() takes it
  watch_if_room();
  show(false);
  return client_waits_ || checks_before_announcing_ > 0 || lacks_room_ || shortage_ != 0;
}

std::optional<AcceptedClient> AcceptQueue::take() {
  const std::lock_guard lock(mutex_);
  std::optional<AcceptedClient> taken;
  if (connected_.empty()) retry();
  if (!connected_.empty()) {
    taken.emplace(std::move(connected_.front()));
    connected_.pop_front();
    begin_accepting_ahead();
  }
  watch_if_room();
  show(false);
  return taken;
}

void AcceptQueue::put_back(AcceptedClient client) {
  const std::lock_guard lock(mutex_);
  if (!open_) return;
  connected_.push_front(std::move(client));
  show(true);
}

int AcceptQueue::shortage() const {
  const std::lock_guard lock(mutex_);
  return shortage_;
}

void AcceptQueue::close() {
  std::deque<AcceptedClient> connected;
  {
    const std::lock_guard lock(mutex_);
    if (!open_) return;
    open_ = false;
    end_accepting_directly();
    checks_before_announcing_ = 0;
    announced_ = false;  // it ends with its listener
    connected.swap(connected_);
    AcceptThread::instance().offers().withdraw(cookie_);
    AcceptThread::instance().remove(kernel_, cookie_);
    AcceptThread::instance().arriving().remove_all_of(*this);
    close_requests();
    show(true);
  }
  for (AcceptedClient& client : connected) {
    if (auto* accepted = std::get_if<AcceptedStream>(&client)) accepted->stream.abort();
  }
}

}  // namespace weft::interpose
