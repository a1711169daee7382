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
      first_fd_(next_range()),
      programs_(*this, schedule_, [this](SimulatedProcess& process) { close_sockets(process); }) {}

void Network::end() {
  programs_.kill([](const SimulatedProcess&) { return true; });
  over_ = true;
  calls_.clear();
  timers_.clear();
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

void Network::run(std::size_t host, std::string name, std::function<void()> function) {
  auto process = std::make_shared<SimulatedProcess>();
  process->host = host;
  process->is_program = true;
  programs_.add(std::move(process), std::move(name), std::move(function), false);
}

const std::shared_ptr<SimulatedProcess>& Network::current_process() const {
  return opening_ ? opening_ : programs_.process();
}

std::vector<sockaddr_storage> Network::addresses() const {
  std::vector<sockaddr_storage> own;
  const auto& process = current_process();
  if (process) put(own.emplace_back(), {.address = hosts_[process->host]});
  return own;
}

// The kernel of the host closes the sockets of a process that ends.
void Network::close_sockets(SimulatedProcess& process) {
  process.dead = true;
  for (const auto& socket : std::vector(sockets_)) {
    if (socket && socket->process.get() == &process) abandon(*socket);
  }
}

void Network::kill(std::size_t host) {
  for (const Watching& each : watchers_) {
    if (each.process && each.process->host == host) each.process->dead = true;
  }
  for (const auto& socket : std::vector(sockets_)) {
    if (socket && socket->dead() && socket->process->host == host) abandon(*socket);
  }
  programs_.kill([host](const SimulatedProcess& process) { return process.host == host; });
}

bool Network::is_alive(std::size_t host) const {
  return programs_.any_on(host) || std::ranges::any_of(watchers_, [host](const Watching& each) {
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
  watchers_.push_back({&watcher, current_process()});
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
  if (event.kind == Event::Kind::turn) return programs_.is_due(event.target);
  if (event.kind == Event::Kind::timer) {
    const auto timer = timers_.at(event.target).lock();
    if (timer && timer->due_ns == event.due) return true;
    timers_.erase(event.target);
    return false;
  }
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

bool Network::is_idle() {
  while (!schedule_.empty() && !is_live(schedule_.first())) schedule_.remove_first();
  return schedule_.empty();
}

bool Network::step(std::optional<std::uint64_t> until_ns) {
  if (busy_ || over_) return false;
  if (!is_idle() && (!until_ns || schedule_.first().due <= *until_ns)) {
    const Event event = schedule_.first();
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
    return programs_.look(true);
  }
  if (event.kind == Event::Kind::turn) {
    programs_.resume(event.target);
    return programs_.look(false);
  }
  busy_ = true;
  dispatch(event);
  busy_ = false;
  programs_.look(true);
}

void Network::dispatch(const Event& event) {
  if (event.kind == Event::Kind::timer) {
    if (const auto timer = timers_.extract(event.target).mapped().lock()) timer->event.signal();
    return;
  }
  if (event.kind == Event::Kind::deadline) {
    const Programs::Acting acting(programs_, watchers_[event.target].process);
    return watchers_[event.target].watcher->run_simulated_deadlines();
  }
  if (event.kind == Event::Kind::datagram) return deliver(event.target);
  const std::shared_ptr<Socket> socket = share(static_cast<int>(event.target));
  const bool is_answer =
      event.kind == Event::Kind::established || event.kind == Event::Kind::refused;
  // mend() sends again what a cut loses.
  if (is_answer && socket->link && socket->link->cut) return;
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
  const Programs::Acting acting(programs_, socket->process);
  const std::uint32_t ends = socket->was_reset ? std::uint32_t{EPOLLERR} | EPOLLHUP : 0U;
  watchers_[socket->watcher].watcher->dispatch_simulated(socket->token, event | ends);
  if (find(socket->fd) == nullptr) return;
  // What was left is reported again; where nothing was taken, not at the same time without end.
  const Time due = schedule_.now() + (waiting(*socket) == before ? again_ns : 0);
  if (event == EPOLLIN && is_readable(*socket, due)) expect_readable(*socket, due);
  if (event == EPOLLOUT) expect_writable(*socket, due);
}

std::uint64_t Network::now_ns() const {
  const auto& process = programs_.process();
  return schedule_.now() + (process ? process->ahead_ns : 0);
}

void Network::start(const std::shared_ptr<SimulatedTimer>& timer) {
  if (over_) return;
  timers_.emplace(++last_timer_, timer);
  schedule_.add({timer->due_ns, Event::Kind::timer, last_timer_});
}

std::shared_ptr<void>* Network::kept(Keeper keeper) {
  const auto& process = programs_.process();
  if (!process || !process->is_program) return nullptr;
  return &process->kept.at(static_cast<std::size_t>(keeper));
}

void Network::start_thread(std::function<void()> function) {
  programs_.add(programs_.process(), {}, std::move(function), true);
}

// --- Waiting -------------------------------------------------------------------------------------

int Network::poll(std::span<pollfd> entries, std::optional<std::uint64_t> until_ns) {
  if (programs_.inside()) return programs_.wait(entries, until_ns);
  while (true) {
    const int ready = Programs::look_at(entries);
    if (ready != 0) return ready;
    if (until_ns && now_ns() >= *until_ns) return 0;
    if (!step(until_ns) && !until_ns) return -EDEADLK;
  }
}

void Network::looked() {
  if (programs_.inside()) return programs_.note_look();
  step(std::nullopt);
}

// A program that polls for ever waits for something that will not come.
void Network::polled() {
  if (programs_.inside()) {
    if (polls_advance_ && !busy_ && !over_) programs_.note_look();
    return;
  }
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
