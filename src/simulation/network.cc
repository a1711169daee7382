// Hosts, processes, watchers and events. network_sockets.cc has the calls of sockets,
// network_streams.cc and network_datagrams.cc have what travels between them.
#include "simulation/network.h"

#include <netinet/in.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "simulation/places.h"

namespace weft::simulation {
namespace {

// Each simulation of the process has descriptors of its own, so that an object which outlives its
// simulation closes nothing of the next one.
constexpr int descriptors_each = 1 << 20;

int next_range() {
  static std::atomic<unsigned> ranges{0};
  constexpr unsigned most = ((1U << 30) / descriptors_each) - 1;
  return SimulatedKernel::first_descriptor +
         static_cast<int>(ranges.fetch_add(1) % most) * descriptors_each;
}

// What remains readable or writable although its target was called is reported again after this.
constexpr Time again_ns = 1000;

}  // namespace

Network::Network(std::uint64_t seed, const Link& link, bool polls_advance)
    : schedule_(seed),
      names_(~seed),
      choices_(seed * 2 + 1),
      links_(link),
      polls_advance_(polls_advance),
      first_fd_(next_range()) {}

void Network::end() {
  over_ = true;
  calls_.clear();
}

// --- Hosts ---------------------------------------------------------------------------------------

std::size_t Network::add_host(std::uint32_t address) {
  hosts_.push_back(address);
  return hosts_.size() - 1;
}

std::optional<std::size_t> Network::host_at(std::uint32_t address) const {
  const auto found = std::ranges::find(hosts_, address);
  if (found == hosts_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - hosts_.begin());
}

void Network::open_on(std::optional<std::size_t> host) {
  opening_ = host ? std::make_shared<SimulatedProcess>(SimulatedProcess{.host = *host}) : nullptr;
}

std::vector<sockaddr_storage> Network::addresses() const {
  std::vector<sockaddr_storage> own;
  if (opening_) put(own.emplace_back(), {.address = hosts_[opening_->host]});
  return own;
}

// The kernel of the host closes the sockets of a process that ends.
void Network::kill(std::size_t host) {
  for (const Watching& each : watchers_) {
    if (each.process && each.process->host == host) each.process->dead = true;
  }
  for (const auto& socket : sockets_) {
    if (!socket || !socket->dead()) continue;
    if (socket->process->host == host) abandon(*socket);
  }
}

bool Network::is_alive(std::size_t host) const {
  return std::ranges::any_of(watchers_, [host](const Watching& each) {
    return each.watcher && each.process && each.process->host == host && !each.process->dead;
  });
}

void Network::call_at(Time due, std::function<void()> function) {
  calls_.emplace(++last_call_, std::move(function));
  schedule_.add({due, Event::Kind::call, last_call_});
}

void Network::fill_random(MutableBytes out) {
  while (!out.empty()) {
    const std::uint64_t word = names_.next();
    const std::size_t count = std::min(out.size(), sizeof word);
    std::memcpy(out.data(), &word, count);
    out = out.subspan(count);
  }
}

// --- Watchers ------------------------------------------------------------------------------------

std::size_t Network::add(Watcher& watcher) {
  watchers_.push_back({&watcher, opening_});
  return watchers_.size() - 1;
}

void Network::remove(std::size_t watcher) {
  watchers_[watcher].watcher = nullptr;
}

int Network::watch(std::size_t watcher, int fd, std::uint32_t events, std::uint64_t token) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  socket->watcher = watcher;
  socket->events = events;
  socket->token = token;
  socket->process = watchers_[watcher].process;
  report(*socket);
  return 0;
}

int Network::change(int fd, std::uint32_t events) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  socket->events = events;
  report(*socket);
  return 0;
}

void Network::unwatch(int fd) {
  if (Socket* const socket = find(fd)) socket->events = 0;
}

void Network::set_deadline(std::size_t watcher, std::uint64_t deadline_ns) {
  schedule_.add({deadline_ns, Event::Kind::deadline, watcher});
}

// As a level-triggered epoll: what is ready already is an event now.
void Network::report(const Socket& socket) {
  if (is_readable(socket, schedule_.now())) expect_readable(socket, schedule_.now());
  expect_writable(socket, schedule_.now());
}

// Whether the socket is watched counts when the time has come.
void Network::expect_readable(const Socket& socket, Time due) {
  if (due == never) return;
  schedule_.add({due, Event::Kind::readable, static_cast<std::uint64_t>(socket.fd)});
}

void Network::expect_writable(const Socket& socket, Time due) {
  if ((socket.events & EPOLLOUT) == 0 || due == never) return;
  if (!is_writable(socket)) return;
  schedule_.add({due, Event::Kind::writable, static_cast<std::uint64_t>(socket.fd)});
}

// --- Events --------------------------------------------------------------------------------------

// An event may have lost its object, or its reason, since it was expected.
bool Network::is_live(const Event& event) {
  if (event.kind == Event::Kind::call) return true;
  if (event.kind == Event::Kind::deadline) {
    const Watching& each = watchers_[event.target];
    if (!each.watcher || (each.process && each.process->dead)) return false;
    return each.watcher->has_deadline_by(event.due);
  }
  if (event.kind == Event::Kind::datagram) return flights_.has(event.target);
  const Socket* const socket = find(static_cast<int>(event.target));
  if (!socket || socket->dead()) return false;
  const Time at = std::max(event.due, schedule_.now());
  if (event.kind == Event::Kind::readable) {
    return (socket->events & EPOLLIN) != 0 && is_readable(*socket, at);
  }
  if (event.kind == Event::Kind::writable) {
    return (socket->events & EPOLLOUT) != 0 && is_writable(*socket);
  }
  return true;
}

bool Network::step(std::optional<std::uint64_t> until_ns) {
  if (busy_ || over_) return false;
  while (!schedule_.empty()) {
    const Event event = schedule_.first();
    if (!is_live(event)) {
      schedule_.remove_first();
      continue;
    }
    if (until_ns && event.due > *until_ns) break;
    schedule_.remove_first();
    schedule_.advance(event.due);
    ++carried_out_;
    carry_out(event);
    return true;
  }
  if (until_ns) schedule_.advance(*until_ns);
  return false;
}

void Network::carry_out(const Event& event) {
  const bool of_socket = event.kind < Event::Kind::datagram;
  const std::uint64_t target =
      of_socket ? event.target - static_cast<std::uint64_t>(first_fd_) : event.target;
  schedule_.note(schedule_.now());
  schedule_.note(static_cast<std::uint64_t>(event.kind) << 56U | target);
  if (event.kind == Event::Kind::call) {
    // The function may carry out events itself.
    auto called = calls_.extract(event.target);
    if (called) called.mapped()();
    return;
  }
  busy_ = true;
  dispatch(event);
  busy_ = false;
}

void Network::dispatch(const Event& event) {
  if (event.kind == Event::Kind::deadline) {
    return watchers_[event.target].watcher->run_simulated_deadlines();
  }
  if (event.kind == Event::Kind::datagram) return deliver(event.target);
  const std::shared_ptr<Socket> socket = share(static_cast<int>(event.target));
  switch (event.kind) {
    case Event::Kind::readable:
      return tell(socket, EPOLLIN);
    case Event::Kind::writable:
      return tell(socket, EPOLLOUT);
    case Event::Kind::syn:
      return arrive(*socket);
    case Event::Kind::established:
      return establish(*socket);
    case Event::Kind::refused:
      return fail(*socket, ECONNREFUSED);
    case Event::Kind::reset:
      return take_reset(*socket);
    default:
      return;
  }
}

void Network::tell(const std::shared_ptr<Socket>& socket, std::uint32_t event) {
  const std::size_t before = waiting(*socket);
  schedule_.note(before);
  const std::uint32_t ends = socket->was_reset ? std::uint32_t{EPOLLERR} | EPOLLHUP : 0U;
  watchers_[socket->watcher].watcher->dispatch_simulated(socket->token, event | ends);
  if (find(socket->fd) == nullptr) return;
  // What was left is reported again; where nothing was taken, not at the same time without end.
  const Time due = schedule_.now() + (waiting(*socket) == before ? again_ns : 0);
  if (event == EPOLLIN && is_readable(*socket, due)) expect_readable(*socket, due);
  if (event == EPOLLOUT) expect_writable(*socket, due);
}

// A program that polls for ever waits for something that will not come.
void Network::polled() {
  if (!polls_advance_ || busy_ || over_) return;
  if (step(std::nullopt)) {
    idle_polls_ = 0;
    return;
  }
  constexpr std::uint64_t many = 1'000'000;
  if (++idle_polls_ == many) {
    log(LogLevel::warning, "simulation",
        "nothing happens any more in the simulation, and the program polls on");
  }
}

}  // namespace weft::simulation
