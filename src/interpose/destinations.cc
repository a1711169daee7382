#include "interpose/destinations.h"

#include <cerrno>
#include <string>

#include "interpose/address.h"
#include "interpose/process.h"

namespace weft::interpose {
namespace {

// A connection with fewer transfers would have been cheaper by the kernel.
constexpr Transfers least_of_stream = 128;
// This many brief ones follow each other before the next is expected to be brief.
constexpr unsigned brief_before_kernel = 8;
// Beyond this number of addresses all is forgotten, and learnt again.
constexpr std::size_t most_known = 1024;
constexpr std::chrono::minutes plain_for{1};

// False once the server has withdrawn its offer, has ended, or has listened anew.
bool stands(const Descriptor& offer) {
  char ignored;
  return offer.valid() &&
         next::recv(offer.get(), &ignored, sizeof ignored, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         errno == EAGAIN;
}

// Connections of a host to itself have one address at both ends. No packet is sent.
bool is_on_this_host(const stream::Address& peer) {
  const bool six = peer.host.find(':') != std::string::npos;
  const auto there = address_of(peer, six ? AF_INET6 : AF_INET);
  const Descriptor probe(next::socket(there.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid()) return false;
  if (next::connect(probe.get(), reinterpret_cast<const sockaddr*>(&there), size_of(there)) != 0) {
    return false;
  }
  sockaddr_storage here{};
  socklen_t bytes = sizeof here;
  next::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&here), &bytes);
  const auto host_of = [](const sockaddr_storage& name) {
    return to_address(reinterpret_cast<const sockaddr*>(&name), size_of(name), false).host;
  };
  return host_of(here) == host_of(there);
}

Descriptor connect_to_offer(const stream::Address& peer, OfferedFor kind) {
  Descriptor made(next::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.valid()) return {};
  for (const std::string& address : offered_addresses(peer)) {
    const OfferName name = offer_name(address, kind);
    const auto* target = reinterpret_cast<const sockaddr*>(&name.address);
    if (next::connect(made.get(), target, name.bytes) != 0) continue;
    return may_offer(made.get(), peer.port) ? move_high(std::move(made)) : Descriptor();
  }
  return {};
}

}  // namespace

void print_plain(const stream::Address& peer) {
  print_notice(to_text(peer) + " speaks plain TCP: connected without RDMA (--sockets=fallback)");
}

// Never destroyed: threads of the program may close connections until the process ends.
Destinations& Destinations::instance() {
  static Destinations* const made = new Destinations();
  return *made;
}

// With mutex_ held.
Destinations::Known& Destinations::known(const stream::Address& peer) {
  Key key{peer.host, peer.port};
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  if (known_.size() >= most_known) known_.clear();
  Known& made = known_[std::move(key)];
  made.away = !is_on_this_host(peer);
  return made;
}

bool Destinations::prefers_kernel(const stream::Address& peer) {
  if (!may_leave_to_kernel()) return false;
  const std::lock_guard lock(mutex_);
  Known& there = known(peer);
  if (there.away) return false;
  const bool brief = there.brief_in_a_row >= brief_before_kernel;
  if (stands(there.offer)) return brief || there.kind == OfferedFor::all_connections;
  return find_offer(there, peer, OfferedFor::all_connections) ||
         (brief && find_offer(there, peer, OfferedFor::brief_connections));
}

// With mutex_ held.
bool Destinations::find_offer(Known& there, const stream::Address& peer, OfferedFor kind) {
  there.offer = connect_to_offer(peer, kind);
  there.kind = kind;
  return there.offer.valid();
}

bool Destinations::still_offered(const stream::Address& peer) {
  const std::lock_guard lock(mutex_);
  return stands(known(peer).offer);
}

std::string Destinations::reason(const stream::Address& peer) {
  const std::lock_guard lock(mutex_);
  return known(peer).kind == OfferedFor::all_connections
             ? "several processes of the server accept there"
             : "the last ones were brief";
}

void Destinations::note_end(const stream::Address& peer, Transfers transfers) {
  if (!may_leave_to_kernel()) return;
  const std::lock_guard lock(mutex_);
  Known& there = known(peer);
  const bool brief = transfers < least_of_stream;
  there.brief_in_a_row = brief ? there.brief_in_a_row + 1 : 0;
}

void Destinations::note_plain(const stream::Address& peer) {
  const std::lock_guard lock(mutex_);
  known(peer).plain_until = std::chrono::steady_clock::now() + plain_for;
}

bool Destinations::is_plain(const stream::Address& peer) {
  if (!tcp_fallback_allowed()) return false;
  const std::lock_guard lock(mutex_);
  const auto found = known_.find({peer.host, peer.port});
  return found != known_.end() && std::chrono::steady_clock::now() < found->second.plain_until;
}

bool Destinations::seems_plain(const stream::Address& peer) {
  if (is_plain(peer)) return true;
  if (!tcp_fallback_allowed() || !may_leave_to_kernel()) return false;
  const std::lock_guard lock(mutex_);
  Known& there = known(peer);
  return !there.away && !stands(there.offer) &&
         !find_offer(there, peer, OfferedFor::all_connections) &&
         !find_offer(there, peer, OfferedFor::brief_connections);
}

void Destinations::forget_plain() {
  const std::lock_guard lock(mutex_);
  for (auto& [key, there] : known_) there.plain_until = {};
}

}  // namespace weft::interpose
