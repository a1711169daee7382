// Reassembles IP datagrams from their fragments (RFC 791 §3.2, RFC 8200 §4.5).
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "weft/capture/host_address.hpp"

namespace weft::capture {

struct IpFragment {
  HostAddress source{};
  HostAddress destination{};
  std::uint32_t id = 0;
  std::uint8_t protocol = 0;
  std::uint32_t offset_bytes = 0;
  bool more = false;
  Bytes headers{};  // IP header with extension headers; those of the first fragment are kept
  Bytes payload{};
  std::int64_t time_ns = 0;
};

class IpFragments {
 public:
  struct Limits {
    std::size_t datagrams = 256;  // incomplete datagrams at a time; the oldest is dropped first
    std::int64_t lifetime_ns = 30'000'000'000;      // RFC 8200 §4.5 allows at most 60 s
    std::uint32_t datagram_bytes = 65'535 + 1'500;  // a longer datagram is invalid or an attack
  };
  struct Datagram {
    std::vector<std::byte> headers;
    std::vector<std::byte> payload;
    std::uint8_t protocol = 0;  // that of the first fragment
  };

  IpFragments() : IpFragments(Limits{}) {}
  explicit IpFragments(const Limits& limits) : limits_(limits) {}

  // Returns the whole datagram if this fragment completes it, otherwise nullptr. Valid until the
  // next call.
  const Datagram* add(const IpFragment& fragment);
  // Datagrams that were incomplete when a limit was reached.
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }
  [[nodiscard]] std::size_t waiting() const { return partial_.size(); }

 private:
  struct Range {
    std::uint32_t begin;
    std::uint32_t end;
  };
  struct Partial {
    HostAddress source;
    HostAddress destination;
    std::uint32_t id = 0;
    std::int64_t begun_ns = 0;
    bool end_known = false;
    std::uint32_t end = 0;
    std::vector<Range> have;  // sorted, neither overlapping nor adjacent
    Datagram datagram;

    [[nodiscard]] bool whole() const;
  };

  std::list<Partial>::iterator find(const IpFragment& fragment);
  void expire(std::int64_t now_ns);
  static void place(Partial& partial, const IpFragment& fragment);

  Limits limits_;
  std::list<Partial> partial_;  // oldest first; a list is fine, because there are few
  Datagram complete_;
  std::uint64_t dropped_ = 0;
};

}  // namespace weft::capture
