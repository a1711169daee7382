// Control advertises buffers to the peer: it writes records into a ring in the peer's memory, and
// takes the records that the peer has written into the ring here. connection/control_wire.h has the
// layout. Neither side spends a receive on this, so the user's receives keep their order.
#pragma once

#include <cstdint>
#include <optional>

#include "connection/control_wire.h"
#include "weft/connection/connection.hpp"

namespace weft::connection::detail {

class Control {
 public:
  static constexpr std::uint16_t ring_slots = 64;

  explicit Control(const verbs::ProtectionDomain& domain);

  [[nodiscard]] verbs::RemoteSlice region() const { return shared_.remote(); }
  // The peer's region, with a ring of `slots`, once it is known.
  void set_peer(const verbs::RemoteSlice& region, std::uint16_t slots);
  [[nodiscard]] bool has_peer() const { return peer_slots_ > 0; }

  // A write to post: from where, to where.
  struct Write {
    verbs::LocalSlice from;
    verbs::RemoteSlice to;
  };
  // Nothing where the peer has not taken enough records yet.
  [[nodiscard]] std::optional<Write> announce(const Advertisement& advertisement);
  // The last Write of announce() is posted. Without this the next one takes its place.
  void note_announced() { ++announced_; }
  // The next record that the peer has written, if it is there.
  [[nodiscard]] std::optional<Advertisement> take();
  // Our position, when the peer is due to be notified of it.
  [[nodiscard]] std::optional<Write> report();
  // The last Write of report() is posted.
  void note_reported() { reported_ = taken_; }

 private:
  // How many records may be announced and not taken: both rings have room for these.
  [[nodiscard]] std::uint32_t records_under_way() const;

  verbs::TypedRegion<std::byte> shared_;   // the peer writes to it
  verbs::TypedRegion<std::byte> staging_;  // what we write is here until the peer has it
  verbs::RemoteSlice peer_;
  std::uint16_t peer_slots_ = 0;
  std::uint32_t announced_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t reported_ = 0;
};

}  // namespace weft::connection::detail
