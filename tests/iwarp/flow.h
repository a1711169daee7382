// Stored TCP payload of other implementations' connections: see tests/data/iwarp/extract.py.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "support/fpdu.h"
#include "wire/mpa.h"

namespace weft::test {

// One side of a connection; `initiator` sent the MPA request.
enum class Side : std::uint8_t { initiator, responder };

[[nodiscard]] constexpr Side other(Side side) {
  return side == Side::initiator ? Side::responder : Side::initiator;
}

// A piece of the stream, as TCP delivered it.
struct Record {
  Side from = Side::initiator;
  Content bytes{};
};

using Flow = std::vector<Record>;

// Throws where the file is missing or damaged.
[[nodiscard]] std::vector<Flow> load_flows(const std::string& name);

// Everything that one side sent: its MPA frame, then its FPDUs, with the record at which each
// began.
struct Stream {
  struct Fpdu {
    Ulpdu ulpdu;
    std::size_t record = 0;
  };

  Content frame;
  std::vector<Fpdu> fpdus;
};

[[nodiscard]] Stream stream_of(const Flow& flow, Side side);

}  // namespace weft::test
