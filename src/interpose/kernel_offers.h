// What the listening sockets of this process offer to other programs under Weft on this host: to
// leave their connections to the kernel's TCP. An offer is a local socket with a name of its own
// (kernel_offer_name.h). A client connects to it and keeps that connection: while it is open, the
// offer stands. Nothing is sent.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/epoll_set.h"
#include "interpose/descriptor.h"
#include "interpose/kernel_offer_name.h"

namespace weft::interpose {

// Thread-safe. AcceptThread waits for the events of `epoll` and calls on_client() and recheck().
class KernelOffers {
 public:
  // The tokens of offers in `epoll` have this bit; the rest is the queue's cookie.
  static constexpr std::uint64_t token_bit = std::uint64_t{1} << 61;

  explicit KernelOffers(const EpollSet& epoll) : epoll_(epoll) {}

  // Replaces the offer of the queue `cookie`, which listens at `kernel`. No effect if the name is
  // taken.
  void offer(std::uint64_t cookie, int kernel, OfferedFor kind);
  void withdraw(std::uint64_t cookie);
  // A client has connected.
  void on_client(std::uint64_t cookie);
  // Accepts again where no descriptor was left for a client, if `timer_expired`. Returns true if
  // that must be repeated later.
  bool recheck(bool timer_expired);

  // Around fork(2): the offers are the parent's, and the child closes its copies.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child();

 private:
  struct Offer {
    Descriptor listener;
    std::vector<Descriptor> clients;
    bool lacks_descriptor = false;  // for the next client, which waits
  };

  void accept_one(std::uint64_t cookie, Offer& offer) const;

  const EpollSet& epoll_;
  std::mutex mutex_;
  std::map<std::uint64_t, Offer> offers_;  // by cookie
};

}  // namespace weft::interpose
