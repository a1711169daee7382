// How one side tells the other of its buffers: it writes records into a ring in the other's memory.
// No receive is used, so that the user's own keep their order.
//
// The control region, which each side lets the other write to:
//
//   0   8  how many records the peer has taken from the ring in its region, as it tells us
//  64   -  the ring: 32 bytes for each slot
//
// A record: its number, from 1 (4 bytes), address (8), length (8), rkey (4), tag (4), CRC32C of the
// 28 bytes before (4); record n is in slot (n - 1) modulo slots. All in network order. The CRC
// tells when a record is there as a whole: writes need not be placed in order of their bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "weft/connection/connection.hpp"

namespace weft::connection::detail {

class Control {
 public:
  static constexpr std::uint16_t ring_slots = 64;
  static constexpr std::size_t record_bytes = 32;
  static constexpr std::size_t ring_offset = 64;

  // What the peer may write to.
  [[nodiscard]] static constexpr std::size_t peer_bytes(std::uint16_t slots) {
    return ring_offset + slots * record_bytes;
  }

  explicit Control(const verbs::ProtectionDomain& domain);

  [[nodiscard]] verbs::RemoteSlice region() const { return shared_.remote(); }
  // The peer's region, once it is known.
  void set_peer(const verbs::RemoteSlice& region, std::uint16_t slots);
  [[nodiscard]] bool has_peer() const { return peer_slots_ > 0; }

  // A write to post: from where, to where.
  struct Write {
    verbs::LocalSlice from;
    verbs::RemoteSlice to;
  };
  // Nothing where the peer has not taken enough records yet.
  [[nodiscard]] std::optional<Write> announce(const Advertisement& advertisement);
  // The next record that the peer has written, if it is there.
  [[nodiscard]] std::optional<Advertisement> take();
  // How far we are, where it is time to tell the peer.
  [[nodiscard]] std::optional<Write> report();

 private:
  verbs::TypedRegion<std::byte> shared_;   // the peer writes to it
  verbs::TypedRegion<std::byte> staging_;  // what we write is here until the peer has it
  verbs::RemoteSlice peer_;
  std::uint16_t peer_slots_ = 0;
  std::uint32_t announced_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t reported_ = 0;
};

}  // namespace weft::connection::detail
