#include "interpose/arriving_clients.h"

#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "interpose/accept_queue.h"
#include "interpose/process.h"
#include "interpose/refusal.h"

namespace weft::interpose {
namespace {

using Clock = std::chrono::steady_clock;

// They may take this share of RLIMIT_NOFILE, within these limits.
constexpr rlim_t share_of_descriptors = 8;
constexpr rlim_t least_clients = 16;
constexpr rlim_t most_clients = 256;
// A real client sends its request as soon as it is connected, but its thread may have to wait for a
// processor first. Younger clients make no room for others.
constexpr std::chrono::milliseconds youngest_replaced{100};

// Streams send their request at once. A client that is silent for this time is taken for plain TCP.
constexpr std::chrono::seconds short_silence{1};
constexpr std::chrono::seconds long_silence{5};
// Instead of the first: the kernel does not wait while it answers a flood of SYNs with cookies.
constexpr std::chrono::milliseconds silence_after_deferral{100};
// From the key of a request to its last byte.
constexpr std::chrono::seconds rest_of_request{5};

std::size_t max_clients() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return least_clients;
  return std::clamp(limit.rlim_cur / share_of_descriptors, least_clients, most_clients);
}

Clock::duration silence(bool deferred) {
  if (!tcp_fallback_allowed()) return long_silence;
  return deferred ? Clock::duration(silence_after_deferral) : Clock::duration(short_silence);
}

}  // namespace

bool ArrivingClients::make_room() {
  const std::lock_guard lock(mutex_);
  // With few clients the limit of descriptors need not be read.
  while (clients_.size() >= least_clients && clients_.size() >= max_clients()) {
    const auto place = replaceable(Clock::now() - youngest_replaced);
    if (place == clients_.end()) return false;
    shut(take_out(place).connection);
    count_refusal(Refusal::evicted);
  }
  return true;
}

// With mutex_ held. A client whose bytes have arrived without on_ready() having seen them is not
// replaced: the request may be complete by now.
ArrivingClients::Clients::iterator ArrivingClients::replaceable(Time before) {
  auto oldest = clients_.end();
  for (auto place = clients_.begin(); place != clients_.end(); ++place) {
    // The map has the oldest clients first, so all that follow are too young as well. A silent
    // client is replaced before one that has sent a part of its request.
    if (place->second.since > before) break;
    if (look_at_first_bytes(place->second.connection.get()).count > place->second.bytes) continue;
    if (place->second.bytes == 0) return place;
    if (oldest == clients_.end()) oldest = place;
  }
  return oldest;
}

// With mutex_ held.
ArrivingClients::Client ArrivingClients::take_out(Clients::iterator place) {
  Client client = std::move(place->second);
  clients_.erase(place);
  epoll_.remove(client.connection.get());
  return client;
}

// With EPOLLET each arrival of bytes is one event.
void ArrivingClients::add(Descriptor connection, const std::shared_ptr<AcceptQueue>& queue,
                          bool deferred) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  const std::uint64_t token = ++last_token_;
  Client& client = clients_[token];
  client = {.connection = std::move(connection),
            .queue = queue,
            .key = queue.get(),
            .since = now,
            .until = now + silence(deferred),
            .bytes = 0};
  if (epoll_.add(client.connection.get(), EPOLLIN | EPOLLRDHUP | EPOLLET, token) != 0) {
    clients_.erase(token);
    count_refusal(Refusal::out_of_descriptors);
  }
}

void ArrivingClients::remove_all_of(const AcceptQueue& queue) {
  const std::lock_guard lock(mutex_);
  for (auto place = clients_.begin(); place != clients_.end();) {
    const auto next = std::next(place);
    // The comparison uses the address, because the weak pointer is empty while the queue is
    // destroyed.
    if (place->second.key == &queue) shut(take_out(place).connection);
    place = next;
  }
}

void ArrivingClients::on_ready(std::uint64_t token, std::uint32_t events) {
  Client arrived;
  Protocol protocol = Protocol::unknown;
  Refusal why = Refusal::malformed;
  {
    const std::lock_guard lock(mutex_);
    const auto place = clients_.find(token);
    // The event may be older than the removal of its client. Tokens are not used again, so that
    // such an event finds no other client.
    if (place == clients_.end()) return;
    Client& client = place->second;
    const FirstBytes found = look_at_first_bytes(client.connection.get());
    const bool ended = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    protocol = ended ? without_more_bytes(found) : found.protocol;
    const bool has_key = found.count >= request_key_bytes && client.bytes < request_key_bytes;
    client.bytes = found.count;
    if (has_key) client.until = Clock::now() + rest_of_request;
    if (protocol == Protocol::unknown) return;
    why = refusal_of(found);
    arrived = take_out(place);
  }
  if (const auto queue = arrived.queue.lock()) {
    queue->on_arrived(std::move(arrived.connection), protocol, why);
  }
}

void ArrivingClients::check_deadlines(Time now) {
  // The queues are called after the lock is released, as in on_ready().
  std::vector<Client> late;
  {
    const std::lock_guard lock(mutex_);
    for (auto place = clients_.begin(); place != clients_.end();) {
      const auto next = std::next(place);
      if (place->second.until <= now) late.push_back(take_out(place));
      place = next;
    }
  }
  for (Client& client : late) {
    const auto found = look_at_first_bytes(client.connection.get());
    if (const auto queue = client.queue.lock()) {
      queue->on_arrived(std::move(client.connection), without_more_bytes(found),
                        Refusal::timed_out);
    }
  }
}

ArrivingClients::Time ArrivingClients::next_deadline() {
  const std::lock_guard lock(mutex_);
  Time first = Time::max();
  for (const auto& [token, client] : clients_) first = std::min(first, client.until);
  return first;
}

// The epoll set is the parent's, and is not changed.
void ArrivingClients::after_fork_in_child() {
  clients_.clear();
  mutex_.unlock();
}

}  // namespace weft::interpose
