// Keeps the first packets of a capture until it is known whether its ICRCs mean anything. A capture
// that was taken before the ICRC was filled in has none that is correct. In every other one the
// receiver drops a packet with a wrong ICRC, even if it is the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "weft/capture/ib_packet.hpp"

namespace weft::capture {

class IbFirstPackets {
 public:
  enum class Icrc : std::uint8_t { correct, wrong, unknown };
  // From this many packets without a correct ICRC on, all are accepted.
  static constexpr std::size_t most = 8;

  // Returns whether nothing more has to wait.
  [[nodiscard]] bool decided() const { return decided_; }
  // Takes the next packet, until decided(). Returns true if the packet is kept. If decided() is
  // true after that, the caller takes the packets back, this one included.
  [[nodiscard]] bool add(const IbPacket& packet, Icrc icrc) {
    ++seen_;
    decided_ = icrc == Icrc::correct || seen_ >= most;
    if (packets_.empty() && icrc != Icrc::wrong) return false;
    packets_.emplace_back(packet);
    return true;
  }
  // Ends the waiting, and calls visit(const IbPacket&) for each packet that was kept, in order.
  void take(const auto& visit) {
    decided_ = true;
    for (const Held& held : std::exchange(packets_, {})) visit(held.get());
  }

 private:
  struct Held {
    explicit Held(const IbPacket& from)
        : packet(from),
          network(from.network.begin(), from.network.end()),
          transport(from.transport.begin(), from.transport.end()) {}
    [[nodiscard]] IbPacket get() const {
      IbPacket copy = packet;
      copy.network = network;
      copy.transport = transport;
      return copy;
    }
    IbPacket packet;
    std::vector<std::byte> network;
    std::vector<std::byte> transport;
  };

  bool decided_ = false;
  std::size_t seen_ = 0;
  std::vector<Held> packets_;
};

}  // namespace weft::capture
