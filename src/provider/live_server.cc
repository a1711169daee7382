#include "provider/live_server.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <string>
#include <utility>

#include "base/blocked_signals.h"
#include "base/kernel_random.h"
#include "device/system.h"
#include "live/socket_name.h"
#include "provider/statistics.h"

namespace weft::provider {
namespace {

namespace sys = device::sys;

// A client that does not read its report for so long is dropped, and so is one that asks for
// nothing: a stopped `weft top` must not keep the measuring going.
constexpr std::uint64_t longest_send_ns = 2'000'000'000;
constexpr std::uint64_t longest_silence_ns = 60'000'000'000;
constexpr int look_at_silence_ms = 1000;
// The progress thread also moves the data of queue pairs: clients that come faster than they are
// refused must not keep it here. The socket is reported again while more of them wait.
constexpr int most_accepts_at_once = 8;
// After accept(2) has failed, for example because this process has no descriptor left, the client
// stays in the queue, and epoll would report the socket again at once.
constexpr std::uint64_t pause_ns = 50'000'000;

// By SO_PEERCRED (unix(7)) the kernel names the user of the client. Compared each time, because
// this process may have changed its own.
bool is_own_user(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  return sys::get_option(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) >= 0 &&
         credentials.uid == ::geteuid();
}

}  // namespace

LiveServer::LiveServer(device::Device& device, Descriptor listener)
    : device_(device), listener_(std::move(listener)) {}

LiveServer::~LiveServer() = default;

// Does not start the progress thread: a process without a connection has none. Until that runs,
// clients wait for their first answer.
std::shared_ptr<LiveServer> LiveServer::open(device::Device& device) try {
  const int made = sys::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (made < 0) return nullptr;
  Descriptor listener(made);
  const std::uint64_t random = std::uint64_t{random_word()} << 32 | random_word();
  const auto name = live::address_of(live::socket_name(::getpid(), random));
  if (sys::bind(made, name.generic(), name.bytes) < 0 || sys::listen(made, most_clients) < 0) {
    return nullptr;
  }
  const std::shared_ptr<LiveServer> server(new LiveServer(device, std::move(listener)));
  const std::lock_guard lock(server->mutex_);
  server->watch();
  return server->token_ != 0 ? server : nullptr;
} catch (const std::exception&) {
  return nullptr;
}

// With mutex_ held: the first client may be reported before the token is known.
void LiveServer::watch() {
  token_ = device_.engine().watch_idly(listener_.get(), EPOLLIN, shared_from_this());
}

// With mutex_ held.
void LiveServer::unwatch() {
  if (const auto token = std::exchange(token_, 0)) device_.engine().unwatch(token);
}

void LiveServer::stop() {
  {
    const std::lock_guard lock(mutex_);
    unwatch();
    stopping_ = true;
    listener_.reset();
    if (wake_) wake_->signal();
  }
  if (thread_.joinable()) thread_.join();
}

void LiveServer::abandon_after_fork() {
  listener_.reset();
  for (Client& client : clients_) client.socket.reset();
  if (wake_) wake_->close();
}

// In the progress thread, or in one of the program: accepts only.
void LiveServer::on_ready(std::uint32_t /*epoll_events*/) try {
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < most_accepts_at_once && listener_.valid(); ++i) {
    const int accepted = sys::accept(listener_.get(), nullptr);
    if (accepted == -EAGAIN || accepted == -EINTR) return;
    if (accepted < 0) return pause();
    Descriptor socket(accepted);
    if (is_own_user(accepted)) {
      admit(std::move(socket));
    } else {
      ++device_.refusals().local_other_user;
    }
  }
} catch (const std::exception&) {
  // No memory, or no thread: the client finds its connection closed.
}

// With mutex_ held. Does not start the progress thread, as open().
void LiveServer::pause() {
  unwatch();
  device_.engine().call_idly_at(sys::now_ns() + pause_ns, shared_from_this());
}

// The pause is over.
void LiveServer::on_deadline() try {
  const std::lock_guard lock(mutex_);
  if (!listener_.valid() || token_ != 0) return;
  watch();
  if (token_ == 0) pause();
} catch (const std::exception&) {
  // No memory: no client is accepted any more.
}

// With mutex_ held. A client beyond the limit is closed.
void LiveServer::admit(Descriptor socket) {
  const auto place =
      std::ranges::find_if(clients_, [](const Client& client) { return !client.socket.valid(); });
  if (place == clients_.end()) {
    ++device_.refusals().top_refused;
    return;
  }
  if (!wake_) wake_.emplace();
  if (!wake_->valid()) {
    wake_.reset();
    ++device_.refusals().top_refused;
    return;
  }
  if (!running_) start_thread();
  place->socket = std::move(socket);
  place->asked_ns = sys::now_ns();
  wake_->signal();
}

// With mutex_ held. An earlier thread has released mutex_ for good, and is about to end.
void LiveServer::start_thread() {
  if (thread_.joinable()) thread_.join();
  const BlockedSignals blocked;
  thread_ = std::thread([self = shared_from_this()] { self->run(); });
  running_ = true;
  pthread_setname_np(thread_.native_handle(), "weft-top");
}

void LiveServer::run() {
  device_.statistics_registry().watch_latencies(true);
  while (!ends()) serve_ready();
}

// Whether the thread is to end. A client may come while the latencies are being left.
bool LiveServer::ends() {
  const auto none = [this] {
    return stopping_ || std::ranges::none_of(
                            clients_, [](const Client& client) { return client.socket.valid(); });
  };
  std::unique_lock lock(mutex_);
  if (!none()) return false;
  lock.unlock();
  device_.statistics_registry().watch_latencies(false);
  lock.lock();
  if (none()) {
    running_ = false;
    // There may be no later client, for which it would be joined. stop() joins what it ends itself.
    if (!stopping_) thread_.detach();
    return true;
  }
  lock.unlock();
  device_.statistics_registry().watch_latencies(true);
  return false;
}

// Waits for requests, and answers them.
void LiveServer::serve_ready() {
  std::array<pollfd, most_clients + 1> entries{};
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < most_clients; ++i) {
      entries[i] = {clients_[i].socket.get(), POLLIN, 0};  // poll(2) skips negative numbers
    }
    entries[most_clients] = {wake_->get(), POLLIN, 0};
  }
  const std::uint64_t until_ns = sys::now_ns() + look_at_silence_ms * 1'000'000ULL;
  (void)sys::poll(entries, until_ns, nullptr);
  if (entries[most_clients].revents != 0) wake_->drain();
  for (std::size_t i = 0; i < most_clients && !stopping_; ++i) {
    Client& client = clients_[i];
    if (entries[i].fd < 0 || serve(client, entries[i].revents != 0)) continue;
    const std::lock_guard lock(mutex_);
    client.socket.reset();
  }
}

// False: the client has left, or is to be dropped.
bool LiveServer::serve(Client& client, bool readable) try {
  const std::uint64_t now_ns = sys::now_ns();
  if (!readable) return now_ns - client.asked_ns < longest_silence_ns || refuse();
  std::array<std::byte, 64> asked;
  iovec piece{asked.data(), asked.size()};
  if (sys::receive(client.socket.get(), {&piece, 1}) <= 0) return false;
  client.asked_ns = now_ns;
  const std::string text = to_live_json(device_);
  return send(client.socket, {text.c_str(), text.size() + 1});
} catch (const std::exception&) {
  return false;
}

bool LiveServer::send(const Descriptor& socket, std::string_view text) const {
  const std::uint64_t until_ns = sys::now_ns() + longest_send_ns;
  while (!text.empty()) {
    iovec piece{const_cast<char*>(text.data()), text.size()};
    const std::ptrdiff_t sent = sys::send(socket.get(), {&piece, 1});
    if (sent > 0) {
      text.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (sent != -EAGAIN && sent != -EINTR) return false;
    pollfd writable{socket.get(), POLLOUT, 0};
    const int ready = sys::poll({&writable, 1}, until_ns, nullptr);
    if (stopping_) return false;
    if (ready == 0) return refuse();
  }
  return true;
}

// The client stays away from its socket for too long.
bool LiveServer::refuse() const {
  ++device_.refusals().top_refused;
  return false;
}

}  // namespace weft::provider
