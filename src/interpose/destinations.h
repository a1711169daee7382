// Decides which connections of this process are left to the kernel's TCP: to servers on this host
// that offer it (kernel_offers.h), either for all connections, or for brief ones where the last
// connections to the same address were brief. To open a stream costs ten times as much as to open a
// connection of the kernel; only a connection that lives on earns that back.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "interpose/descriptor.h"
#include "interpose/kernel_offer_name.h"
#include "weft/stream/options.hpp"

namespace weft::interpose {

// How much a connection has carried, in units of one call or 4 KiB.
using Transfers = std::size_t;
constexpr std::size_t bytes_of_transfer = 4096;

// Tells the user on the standard error that a connection to `peer` has no streams.
void print_plain(const stream::Address& peer);

// Thread-safe.
class Destinations {
 public:
  // Of this process.
  static Destinations& instance();

  // True if the next connection to `peer` is to be the kernel's.
  [[nodiscard]] bool prefers_kernel(const stream::Address& peer);
  // True if the offer on which prefers_kernel() relied still stands. To be asked once the
  // connection exists: then the server that accepts it is the one that has made the offer.
  [[nodiscard]] bool still_offered(const stream::Address& peer);
  // Why the last connection to `peer` was left to the kernel: half a sentence.
  [[nodiscard]] std::string reason(const stream::Address& peer);
  // A connection of this process to `peer` has ended.
  void note_end(const stream::Address& peer, Transfers transfers);

  // `peer` has not answered as a stream, and was connected to by the kernel's TCP
  // (--sockets=fallback). A silent one has taken ten seconds to be known, so this is remembered for
  // a minute.
  void note_plain(const stream::Address& peer);
  [[nodiscard]] bool is_plain(const stream::Address& peer);
  // The same, or a server on this host that offers nothing, as nearly every one does that speaks
  // streams.
  [[nodiscard]] bool seems_plain(const stream::Address& peer);
  // A plain connection has ended without a byte from its peer: one that speaks streams may have
  // taken its place, and rejects clients that do not.
  void forget_plain();

  // Around fork(2). Both processes rely on the same offers.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

 private:
  struct Known {
    unsigned brief_in_a_row = 0;
    bool away = false;  // on another host, as far as the address says
    std::chrono::steady_clock::time_point plain_until{};
    OfferedFor kind = OfferedFor::brief_connections;
    Descriptor offer;
  };
  using Key = std::pair<std::string, std::uint16_t>;

  Known& known(const stream::Address& peer);
  [[nodiscard]] static bool find_offer(Known& there, const stream::Address& peer, OfferedFor kind);

  std::mutex mutex_;
  std::map<Key, Known> known_;
};

}  // namespace weft::interpose
