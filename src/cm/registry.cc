#include "cm/registry.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <new>

#include "base/after_fork.h"
#include "base/caller_explains.h"
#include "base/log.h"
#include "cm/identifier.h"
#include "cm/reservation.h"
#include "device/addresses.h"

namespace weft::cm {

Registry::Registry(std::function<device::Context*()> open, const Options& options)
    : open_(std::move(open)), options_(options) {}

// The ids are shut without the lock, because callbacks that run meanwhile may call context().
void Registry::close() {
  shared_ports_.withdraw();
  decltype(channels_) channels;
  decltype(identifiers_) identifiers;
  {
    const std::lock_guard lock(mutex_);
    channels.swap(channels_);
    identifiers.swap(identifiers_);
  }
  // In the order of creation, so that a simulation repeats it.
  std::map<std::uint64_t, std::shared_ptr<Identifier>> ordered;
  for (const auto& [raw, known] : identifiers) ordered.emplace(known.number, known.identifier);
  for (const auto& [number, identifier] : ordered) identifier->shut();
  ordered.clear();
  identifiers.clear();
  // Destroyed after the lock is released. A channel keeps this object.
  std::vector<std::shared_ptr<Channel>> unread;
  // A thread that looks an address up may keep an id, and with it this object, for longer than the
  // device exists.
  const std::lock_guard lock(mutex_);
  unread = take_unread();
  xrc_domains_.clear();
  domain_.reset();
}

// A failure is not remembered, so that the next call tries again.
device::Context* Registry::context() {
  const std::lock_guard lock(mutex_);
  if (!context_) context_ = open_();
  if (!context_ && errno == 0) errno = ENODEV;
  return context_;
}

device::Context* Registry::opened() {
  const std::lock_guard lock(mutex_);
  return context_;
}

// The context is opened before the lock is taken, because context() takes it, too.
ibv_pd* Registry::default_domain() {
  device::Context* const opened = context();
  if (!opened) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!domain_) domain_.reset(opened->allocate_domain());
  return &domain_->pd;
}

// Ids of one device share a domain, so that a request that arrives by one id finds the shared
// receive queue of another.
device::XrcHandle& Registry::xrc_domain(ibv_context* context) {
  const std::lock_guard lock(mutex_);
  const auto first = xrc_domains_.begin();
  const bool known = first != xrc_domains_.end();
  const auto domain = known ? first->second.domain : std::make_shared<device::XrcDomain>();
  device::XrcHandle& handle = xrc_domains_[context];
  handle.xrcd.context = context;
  if (!handle.domain) handle.domain = domain;
  return handle;
}

void Registry::report_unacknowledged(const std::string& peer) {
  ++counters_.unacknowledged;
  if (reported_unacknowledged_.exchange(true)) return;
  log_format(LogLevel::warning, "rdma_cm",
             "peer %s grants no reads: completions mean 'TCP has the bytes'", peer.c_str());
}

// The program itself only reports an address in use, although an InfiniBand port of that number
// would be free, so the reason is explained here.
void Registry::report_address_in_use(const sockaddr_storage& tcp) {
  ++counters_.addresses_in_use;
  if (CallerExplains::active() || reported_address_in_use_.exchange(true)) return;
  log_format(LogLevel::warning, "rdma_cm",
             "%s has TCP port %d of this machine already, which is where iWARP would "
             "listen; WEFT_PORT_OFFSET=n, on both sides, moves all ports by n",
             listens_itself(device::port_of(tcp)) ? "a listener of this program" : "another socket",
             device::port_of(tcp));
}

void Registry::report_no_mpa(const sockaddr_storage& tcp, iwarp::HandshakeFailure failure) {
  if (reported_no_mpa_.exchange(true)) return;
  log_format(LogLevel::warning, "rdma_cm",
             "%s accepts TCP connections, but %s; if a program there uses this number for "
             "TCP and for rdma_cm, WEFT_PORT_OFFSET=n, on both sides, moves the ports of rdma_cm",
             device::to_string(tcp).c_str(), iwarp::describe(failure));
}

void Registry::report_no_reply(const sockaddr_storage& tcp) {
  if (reported_no_reply_.exchange(true)) return;
  log_format(LogLevel::warning, "rdma_cm",
             "%s has not answered the connection request yet: its program has not called "
             "rdma_accept, or it speaks plain TCP; if a program there uses this number for TCP and "
             "for rdma_cm, WEFT_PORT_OFFSET=n, on both sides, moves the ports of rdma_cm",
             device::to_string(tcp).c_str());
}

void Registry::add(const std::shared_ptr<Channel>& channel) {
  const std::lock_guard lock(mutex_);
  channels_.emplace(channel.get(), channel);
}

// A channel with a waiting thread is kept until a later call finds that it has none.
void Registry::remove(Channel* channel) {
  // Destroyed after the lock is released: events on the channels may hold the last reference to
  // ids.
  std::vector<std::shared_ptr<Channel>> unread;
  const std::lock_guard lock(mutex_);
  const auto found = channels_.find(channel);
  if (found == channels_.end()) return;
  channel->retire();
  still_read_.push_back(std::move(found->second));
  channels_.erase(found);
  unread = take_unread();
}

// With the lock: the destroyed channels without a waiting thread.
std::vector<std::shared_ptr<Channel>> Registry::take_unread() {
  const auto unread = std::partition(still_read_.begin(), still_read_.end(),
                                     [](const auto& it) { return it->is_being_read(); });
  std::vector<std::shared_ptr<Channel>> taken(std::make_move_iterator(unread),
                                              std::make_move_iterator(still_read_.end()));
  still_read_.erase(unread, still_read_.end());
  return taken;
}

void Registry::add(const std::shared_ptr<Identifier>& identifier) {
  const std::lock_guard lock(mutex_);
  identifiers_.emplace(identifier.get(), Known{identifier, ++last_number_});
}

void Registry::remove(Identifier* identifier) {
  std::shared_ptr<Identifier> last;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  const auto found = identifiers_.find(identifier);
  if (found == identifiers_.end()) return;
  last = std::move(found->second.identifier);
  identifiers_.erase(found);
}

bool Registry::has_objects() {
  const std::lock_guard lock(mutex_);
  return !channels_.empty() || !identifiers_.empty();
}

// If another thread held the lock at the fork, the lists may be incomplete and are not read.
void Registry::abandon_after_fork() {
  shared_ports_.abandon_after_fork();
  walk_after_fork(mutex_, [this] {
    for (const auto& [raw, known] : identifiers_) known.identifier->abandon_after_fork();
    for (const auto& [raw, channel] : channels_) channel->abandon_after_fork();
  });
}

}  // namespace weft::cm
