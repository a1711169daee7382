// The connections that peers have opened and whose MPA request is not here yet. A stranger costs
// this process a descriptor before he has sent a byte (RFC 5042 §6.4.1), so their number is
// bounded: where there are too many, the oldest one that has sent nothing is closed, and a
// newcomer, which may be a legitimate client, takes its place.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace weft::device {

class InboundHandshake;

// One for a device: its listeners share the descriptors of one process. Thread-safe; calls nothing
// with its lock held.
class HalfOpen {
 public:
  // `most`: half-open connections; the limit on descriptors may allow fewer.
  explicit HalfOpen(std::size_t most) : most_(most) {}

  void add(const std::shared_ptr<InboundHandshake>& inbound, const sockaddr_storage& peer,
           std::uint64_t now_ns);
  void remove(const InboundHandshake& inbound);

  // True where as many as the process can afford are half open: a share of RLIMIT_NOFILE.
  [[nodiscard]] bool full();
  // True where the peer's address has more than its share. An IPv6 peer is known by the first 64
  // bits, as one host may use all of the others.
  [[nodiscard]] bool crowded(const sockaddr_storage& peer);
  // The oldest one that has sent nothing, else the oldest of all, of those that came before
  // `before_ns`. Null where there is none.
  [[nodiscard]] std::shared_ptr<InboundHandshake> oldest(std::uint64_t before_ns);
  // The same, of this peer's.
  [[nodiscard]] std::shared_ptr<InboundHandshake> oldest_from(const sockaddr_storage& peer);

 private:
  using Source = std::array<unsigned char, 8>;
  struct Entry {
    std::weak_ptr<InboundHandshake> inbound;
    const InboundHandshake* key = nullptr;
    Source source{};
    std::uint64_t since_ns = 0;
  };

  [[nodiscard]] static Source source_of(const sockaddr_storage& peer);
  [[nodiscard]] bool is_too_many(std::size_t count, std::size_t part) const;
  template <typename Matches>
  [[nodiscard]] std::shared_ptr<InboundHandshake> find(Matches matches);

  const std::size_t most_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // oldest first
  std::unordered_map<const InboundHandshake*, std::list<Entry>::iterator> places_;
  std::map<Source, std::size_t> counts_;
};

}  // namespace weft::device
