// UDP in a simulation: packets that are on their way between hosts, and those that have arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "simulation/links.h"
#include "simulation/pipe.h"

namespace weft::simulation {

// Of IPv4, in host byte order.
struct Place {
  std::uint32_t address = 0;
  std::uint16_t port = 0;

  friend auto operator<=>(const Place&, const Place&) = default;
};

// RFC 1112 §4: class D addresses are those of groups.
[[nodiscard]] inline bool is_group(std::uint32_t address) {
  return address >> 28U == 0xE;
}

struct Packet {
  Place from;
  Place to;
  int time_to_live = 64;
  std::uint8_t type_of_service = 0;
  std::vector<std::byte> bytes;
};

// What a UDP socket has in addition to its addresses.
struct Inbox {
  std::deque<Packet> arrived;
  std::set<std::uint32_t> groups;  // that it has joined
  bool shared = false;             // SO_REUSEADDR: others may be bound to the same place
};

// Packets between hosts. A packet that meets a cut cable is lost, like one that a link loses.
class Flights {
 public:
  // Returns its number.
  std::uint64_t add(Packet packet, std::size_t host, const LinkState& link) {
    flights_.emplace(++last_, Flight{std::move(packet), host, &link});
    return last_;
  }
  [[nodiscard]] bool has(std::uint64_t number) const { return flights_.contains(number); }
  // The packet, and the host that it reaches.
  [[nodiscard]] std::pair<Packet, std::size_t> take(std::uint64_t number) {
    auto taken = flights_.extract(number);
    return {std::move(taken.mapped().packet), taken.mapped().host};
  }
  // Loses all packets of the link.
  void lose(const LinkState& link) {
    std::erase_if(flights_, [&link](const auto& each) { return each.second.link == &link; });
  }

 private:
  struct Flight {
    Packet packet;
    std::size_t host;
    const LinkState* link;
  };

  std::map<std::uint64_t, Flight> flights_;
  std::uint64_t last_ = 0;
};

}  // namespace weft::simulation
