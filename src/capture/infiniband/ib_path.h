// What both directions of a connection know about their path MTU (InfiniBand Architecture
// Specification, volume 1, §9.5.2). The connection manager names it, and packets of full length
// show it; until then, each payload shows that the MTU is not smaller.
//
// The distance from a Read to the next captured request proves less: requests between the two may
// come late or be lost, so it only limits how many packets the Read takes.
#pragma once

#include <cstdint>
#include <optional>

namespace weft::capture {

class IbPath {
 public:
  // The MTU from the connection manager; 0: not known.
  explicit IbPath(std::uint32_t mtu_bytes = 0) { set(mtu_bytes); }

  void set(std::uint32_t mtu_bytes);
  // Learns from the payload of a packet. A `full` packet is not the last one of its message.
  void learn(std::uint64_t payload_bytes, bool full);

  // Returns 0 while several MTUs are possible.
  [[nodiscard]] std::uint32_t mtu_bytes() const {
    return least_bytes_ == most_bytes_ ? static_cast<std::uint32_t>(least_bytes_) : 0;
  }
  // Returns the expected payload of a packet that is not the last one of its message: the MTU, or
  // the smallest possible one for a payload of `found` bytes.
  [[nodiscard]] std::uint64_t full_bytes(std::uint64_t found) const;
  // Returns whether `mtu_bytes` may be the MTU.
  [[nodiscard]] bool may_be(std::uint64_t mtu_bytes) const;
  // Returns how many packets `bytes` need; nothing if that depends on an MTU that is not known.
  [[nodiscard]] std::optional<std::uint64_t> packets_of(std::uint64_t bytes) const;
  // The same for the response to a Read, where the next request lies `distance` PSNs after it.
  [[nodiscard]] std::optional<std::uint64_t> packets_within(std::uint64_t bytes,
                                                            std::uint64_t distance) const;
  // Supposes that no request is missing in that distance. Returns how many packets the response
  // has if an MTU explains it, or as few as possible if none does. Later Reads with an equally good
  // explanation by the same MTU are then taken for certain.
  [[nodiscard]] std::uint64_t guess_packets(std::uint64_t bytes, std::uint64_t distance);

 private:
  std::uint64_t least_bytes_ = 0;  // the MTU is one of the powers of two
  std::uint64_t most_bytes_ = 0;   // from the first to the second
  std::uint64_t guessed_bytes_ = 0;
};

}  // namespace weft::capture
