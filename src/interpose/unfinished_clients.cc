#include "interpose/unfinished_clients.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "interpose/address.h"
#include "interpose/process.h"
#include "interpose/program_signals.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

using Clock = std::chrono::steady_clock;

// Each costs a descriptor. More than that many are there only during an attack.
constexpr std::size_t most_clients = 64;
// Streams send their request at once and in one piece, so a client that is silent for this time is
// taken for plain TCP.
constexpr std::chrono::seconds silence{1};
// The kernel has waited for the first byte already (TCP_DEFER_ACCEPT), except while it answers a
// flood of SYNs with cookies.
constexpr std::chrono::milliseconds silence_after_deferral{100};
// From the first byte on.
constexpr std::chrono::milliseconds rest_of_request{100};
// A program that does not wait in accept(2) is delayed for a tenth of its time at most.
constexpr int rest_after_wait = 9;
// For ten seconds, if other processes take them all.
constexpr int most_wake_ups = 100;
constexpr std::chrono::milliseconds first_pause{1};
constexpr std::chrono::milliseconds longest_pause{100};

// A socket's own number: that of its descriptor may be used again. Zero if the kernel has none.
std::uint64_t cookie_of(int kernel) {
  std::uint64_t cookie = 0;
  socklen_t bytes = sizeof cookie;
  next::getsockopt(kernel, SOL_SOCKET, SO_COOKIE, &cookie, &bytes);
  return cookie;
}

bool is_deferred(int kernel) {
  int seconds = 0;
  socklen_t bytes = sizeof seconds;
  return next::getsockopt(kernel, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, &bytes) == 0 &&
         seconds > 0;
}

// poll(2) reports the client when more than `bytes` bytes are there.
void report_beyond(int connection, std::size_t bytes) {
  const int wanted = static_cast<int>(bytes) + 1;
  next::setsockopt(connection, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
}

bool has_ended(int connection) {
  pollfd entry{connection, POLLRDHUP, 0};
  return next::poll(&entry, 1, 0) > 0;
}

bool is_served(Protocol protocol) {
  return protocol == Protocol::stream || protocol == Protocol::agreed ||
         (protocol == Protocol::plain && tcp_fallback_allowed());
}

int poll_until(std::vector<pollfd>& waited, UnfinishedClients::Time until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  // Another thread may take a client meanwhile, and its number may be used again: then poll(2)
  // returns too early, or at the deadline.
  const int most_ms = std::max(0, static_cast<int>(left.count()));
  return next::poll(waited.data(), waited.size(), most_ms);
}

// In a thread of the program. False if a signal has come.
bool sleep_until(std::vector<pollfd>& waited, UnfinishedClients::Time until) {
  const Waiting wait;
  return !wait.ends_polling() && (poll_until(waited, until) >= 0 || errno != EINTR);
}

// Makes the listening socket at `address` readable, and waits until a process has accepted this
// connection and closed it. False if no process listens there.
bool call_accept(const sockaddr_storage& address) {
  const Descriptor caller =
      move_high(Descriptor(next::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  const auto* listener = reinterpret_cast<const sockaddr*>(&address);
  if (!caller.valid() || next::connect(caller.get(), listener, size_of(address)) != 0) return false;
  next::send(caller.get(), wake_key.data(), wake_key.size(), MSG_NOSIGNAL);
  pollfd entry{caller.get(), POLLIN, 0};
  next::poll(&entry, 1, -1);
  return true;
}

}  // namespace

UnfinishedClients& UnfinishedClients::instance() {
  static auto* const made = new UnfinishedClients();
  return *made;
}

void UnfinishedClients::add(int kernel, Descriptor connection) {
  const auto limit =
      is_deferred(kernel) ? Clock::duration(silence_after_deferral) : Clock::duration(silence);
  const std::lock_guard lock(mutex_);
  if (clients_.size() >= most_clients) {
    shut(clients_.front().connection);
    clients_.pop_front();
    count_refusal(Refusal::evicted);
  }
  clients_.push_back({.connection = std::move(connection),
                      .listener = cookie_of(kernel),
                      .until = Clock::now() + limit,
                      .bytes = 0});
}

// With mutex_ held. Nothing while the client has time and has not sent enough.
std::optional<UnfinishedClients::Arrived> UnfinishedClients::decide(Client& client) {
  const int fd = client.connection.get();
  const bool ended = has_ended(fd);  // before the look at its bytes: none arrives after its end
  const FirstBytes found = look_at_first_bytes(fd);
  const auto now = Clock::now();
  if (client.bytes == 0 && found.count > 0) {
    // The shorter limit begins with the first byte, and never extends the limit for silence.
    client.until = std::min(client.until, now + rest_of_request);
  }
  if (found.count != client.bytes) report_beyond(fd, found.count);
  client.bytes = found.count;
  const bool late = client.until <= now;
  if (found.protocol == Protocol::unknown && !ended && !late) return std::nullopt;
  report_beyond(fd, 0);
  const bool timed_out = found.protocol == Protocol::unknown && !ended;
  return Arrived{.connection = std::move(client.connection),
                 .protocol = without_more_bytes(found),
                 .why = timed_out ? Refusal::timed_out : refusal_of(found)};
}

std::optional<UnfinishedClients::Arrived> UnfinishedClients::take(int kernel) {
  const std::lock_guard lock(mutex_);
  if (clients_.empty()) return std::nullopt;
  const std::uint64_t listener = cookie_of(kernel);
  for (auto place = clients_.begin(); place != clients_.end(); ++place) {
    if (place->listener != listener) continue;
    if (auto arrived = decide(*place)) {
      clients_.erase(place);
      return arrived;
    }
  }
  return std::nullopt;
}

// With mutex_ held. The clients of `listener`, and when the first of them has had enough time.
UnfinishedClients::Time UnfinishedClients::add_to(std::vector<pollfd>& waited,
                                                  std::uint64_t listener) const {
  auto until = Time::max();
  for (const Client& client : clients_) {
    if (client.listener != listener) continue;
    waited.push_back({client.connection.get(), POLLIN | POLLRDHUP, 0});
    until = std::min(until, client.until);
  }
  return until;
}

UnfinishedClients::Waited UnfinishedClients::wait(int kernel, bool blocks) {
  std::vector<pollfd> waited{{kernel, POLLIN, 0}};
  auto until = Time::max();
  const auto begin = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    if (clients_.empty() || (!blocks && begin < next_wait_)) return Waited::kernel;
    until = add_to(waited, cookie_of(kernel));
    if (waited.size() == 1) return Waited::kernel;
    ++waiting_;
  }
  const bool interrupted = !sleep_until(waited, until);
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  --waiting_;
  if (!blocks) next_wait_ = now + rest_after_wait * (now - begin);
  if (interrupted) return Waited::interrupted;
  return waited[0].revents != 0 ? Waited::kernel : Waited::client;
}

// --- The thread that has the program call accept(2) ----------------------------------------------

void UnfinishedClients::watch(int kernel) {
  const std::lock_guard lock(mutex_);
  if (clients_.empty()) return;
  const std::uint64_t listener = cookie_of(kernel);
  std::vector<pollfd> waited;
  (void)add_to(waited, listener);
  if (waited.empty() || !watched_.emplace(listener, false).second) return;
  try {
    start_thread(
        [this, listener, address = local_name_of(kernel)] { wake_program(listener, address); });
  } catch (const Error&) {
    watched_.erase(listener);
  }
}

void UnfinishedClients::wake_program(std::uint64_t listener, const sockaddr_storage& address) {
  auto pause = first_pause;
  for (int calls = 0; await_decision(listener); ++calls) {
    set_calling(listener, true);
    if (calls == most_wake_ups || !call_accept(address)) return give_up(listener);
    set_calling(listener, false);
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, longest_pause);
  }
}

// False if no client of the listener is left.
bool UnfinishedClients::await_decision(std::uint64_t listener) {
  while (true) {
    std::vector<pollfd> waited;
    auto until = Time::max();
    {
      const std::lock_guard lock(mutex_);
      until = add_to(waited, listener);
      if (waited.empty()) watched_.erase(listener);
      if (waited.empty()) return false;
    }
    poll_until(waited, until);
    if (find_served(listener)) return true;
  }
}

// True if a client of the listener is to be served. Those that are not are refused here: the
// program would find no client in accept(2), and it may block there. While it waits in accept(2),
// it finds out itself.
bool UnfinishedClients::find_served(std::uint64_t listener) {
  std::unique_lock lock(mutex_);
  if (waiting_ > 0) {
    lock.unlock();
    std::this_thread::sleep_for(longest_pause);
    return false;
  }
  bool found = false;
  for (auto place = clients_.begin(); place != clients_.end();) {
    const auto client = place++;
    if (client->listener != listener) continue;
    auto arrived = decide(*client);
    if (arrived && !is_served(arrived->protocol)) {
      shut(arrived->connection);
      count_refusal(arrived->why);
      clients_.erase(client);
    } else if (arrived) {
      client->connection = std::move(arrived->connection);
      client->until = Clock::now();
      found = true;
    }
  }
  return found;
}

bool UnfinishedClients::is_calling(int kernel) {
  const std::lock_guard lock(mutex_);
  if (watched_.empty() || clients_.size() >= most_clients) return false;
  const auto found = watched_.find(cookie_of(kernel));
  return found != watched_.end() && found->second;
}

void UnfinishedClients::set_calling(std::uint64_t listener, bool calling) {
  const std::lock_guard lock(mutex_);
  watched_[listener] = calling;
}

// The listener is closed, or this process does not accept from it any more.
void UnfinishedClients::give_up(std::uint64_t listener) {
  const std::lock_guard lock(mutex_);
  watched_.erase(listener);
  std::erase_if(clients_, [listener](const Client& client) {
    if (client.listener != listener) return false;
    shut(client.connection);
    count_refusal(Refusal::timed_out);
    return true;
  });
}

// The threads are the parent's.
void UnfinishedClients::after_fork_in_child() {
  clients_.clear();
  watched_.clear();
  waiting_ = 0;
  mutex_.unlock();
}

}  // namespace weft::interpose
