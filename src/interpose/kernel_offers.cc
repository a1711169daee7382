#include "interpose/kernel_offers.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace weft::interpose {
namespace {

constexpr int backlog = 64;
// Of client processes that know of one offer. A further one takes the place of the oldest, which
// then connects by streams until it asks again.
constexpr std::size_t most_clients = 128;

bool has_left(const Descriptor& client) {
  pollfd entry{client.get(), 0, 0};
  return next::poll(&entry, 1, 0) > 0;
}

}  // namespace

void KernelOffers::offer(std::uint64_t cookie, int kernel, OfferedFor kind) {
  const std::string address = offered_address(kernel);
  if (address.empty()) return;
  withdraw(cookie);
  const OfferName name = offer_name(address, kind);
  Descriptor listener(next::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return;
  listener = move_high(std::move(listener));
  const auto* bound = reinterpret_cast<const sockaddr*>(&name.address);
  if (next::bind(listener.get(), bound, name.bytes) != 0 ||
      next::listen(listener.get(), backlog) != 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (epoll_.add(listener.get(), EPOLLIN | EPOLLONESHOT, cookie | token_bit) != 0) return;
  offers_[cookie].listener = std::move(listener);
}

void KernelOffers::withdraw(std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  const auto found = offers_.find(cookie);
  if (found == offers_.end()) return;
  epoll_.remove(found->second.listener.get());
  offers_.erase(found);
}

void KernelOffers::on_client(std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  const auto found = offers_.find(cookie);
  if (found != offers_.end()) accept_one(cookie, found->second);
}

// With mutex_ held. A client for which no descriptor is left waits in the kernel's queue, which
// would be reported without pause.
void KernelOffers::accept_one(std::uint64_t cookie, Offer& offer) const {
  Descriptor client(next::accept4(offer.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  offer.lacks_descriptor = !client.valid() && (errno == EMFILE || errno == ENFILE);
  if (offer.lacks_descriptor) return;
  epoll_.change(offer.listener.get(), EPOLLIN | EPOLLONESHOT, cookie | token_bit);
  if (!client.valid()) return;
  std::erase_if(offer.clients, has_left);
  if (offer.clients.size() >= most_clients) offer.clients.erase(offer.clients.begin());
  offer.clients.push_back(move_high(std::move(client)));
}

bool KernelOffers::recheck(bool timer_expired) {
  const std::lock_guard lock(mutex_);
  bool repeats = false;
  for (auto& [cookie, offer] : offers_) {
    if (timer_expired && offer.lacks_descriptor) accept_one(cookie, offer);
    repeats = repeats || offer.lacks_descriptor;
  }
  return repeats;
}

// The epoll set is the parent's, and is not changed.
void KernelOffers::after_fork_in_child() {
  offers_.clear();
  mutex_.unlock();
}

}  // namespace weft::interpose
