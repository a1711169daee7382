// The set-up of a connection by MPA, of either side, with arbitrary bytes from the peer. The target
// checks that the outcome does not depend on how the bytes are cut, that no byte behind the peer's
// frame is consumed, and that the values agreed on are within what this side has offered.
//
// The first byte of the input selects the options, the second the cuts and the moment at which the
// peer closes, the rest is what the peer sends.
#include <algorithm>
#include <string>

#include "fuzz/fuzz.h"
#include "iwarp/handshake.h"

namespace weft::fuzz {
namespace {

using namespace iwarp;

constexpr unsigned passive_option = 1;
constexpr unsigned revision_1_option = 2;
constexpr unsigned no_crc_option = 4;
constexpr unsigned markers_option = 8;
constexpr unsigned no_peer_to_peer_option = 16;
constexpr unsigned one_rtr_option = 32;
constexpr unsigned reject_option = 64;
constexpr unsigned close_option = 128;

constexpr std::uint16_t max_ird = 32;
constexpr std::uint16_t own_ord = 16;
constexpr std::uint64_t deadline_ns = 1000;

HandshakeOptions options_of(unsigned choice) {
  const bool one_rtr = (choice & one_rtr_option) != 0;
  return {.revision = static_cast<std::uint8_t>((choice & revision_1_option) != 0 ? 1 : 2),
          .crc = (choice & no_crc_option) == 0,
          .markers = (choice & markers_option) != 0,
          .peer_to_peer = (choice & no_peer_to_peer_option) == 0,
          .rtr = {.send = false, .write = !one_rtr, .read = true},
          .ird = 8,
          .ord = own_ord,
          .max_ird = max_ird,
          .deadline_ns = deadline_ns};
}

struct Outcome {
  HandshakeFailure failure = HandshakeFailure::none;
  bool accepted = false;
  bool rejected = false;
  std::size_t consumed = 0;
  Negotiated negotiated;
  std::vector<std::byte> private_data;
  std::vector<std::byte> sent;

  bool operator==(const Outcome&) const = default;
};

// Takes what is to be sent, in pieces of at most `piece` bytes.
void collect(Handshake& handshake, std::size_t piece, std::vector<std::byte>& sent) {
  while (!handshake.output().empty()) {
    const Bytes part = handshake.output().first(std::min(piece, handshake.output().size()));
    sent.insert(sent.end(), part.begin(), part.end());
    handshake.output_done(part.size());
  }
}

// Passes the bytes on as far as the handshake wants them. Returns how many that were.
std::size_t feed(Handshake& handshake, Bytes stream, std::size_t piece) {
  std::size_t consumed = 0;
  while (consumed < stream.size()) {
    const std::size_t wanted = handshake.wanted_bytes();
    require(!handshake.failed() || wanted == 0);
    if (wanted == 0) break;
    const std::size_t bytes = std::min({wanted, piece, stream.size() - consumed});
    handshake.input(stream.subspan(consumed, bytes));
    consumed += bytes;
  }
  return consumed;
}

void check(const Outcome& outcome) {
  require(outcome.accepted + outcome.rejected <= 1);
  require(outcome.failure == HandshakeFailure::none || !outcome.accepted);
  require(outcome.private_data.size() <= wire::MpaFrame::max_private_data_bytes);
  if (!outcome.accepted) return;
  require(outcome.negotiated.ird <= max_ird);
  require(outcome.negotiated.ord <= own_ord);
}

template <typename Side>
void finish(Side& side, unsigned choice, std::size_t piece, Outcome& outcome) {
  if (side.wanted_bytes() > 0) {
    if ((choice & close_option) != 0) {
      side.input_closed();
    } else {
      side.on_time(deadline_ns);
    }
    require(side.failed());
    require(side.wanted_bytes() == 0);
  }
  collect(side, piece, outcome.sent);
  outcome.failure = side.failure();
  outcome.accepted = side.accepted();
  outcome.rejected = side.rejected();
  if (outcome.accepted) outcome.negotiated = side.negotiated();
  const Bytes data = side.peer_private_data();
  outcome.private_data.assign(data.begin(), data.end());
  check(outcome);
}

Outcome run_active(unsigned choice, Bytes stream, std::size_t piece) {
  Outcome outcome;
  const std::string data = "data";
  ActiveHandshake side(options_of(choice), std::as_bytes(std::span(data)));
  collect(side, piece, outcome.sent);
  outcome.consumed = feed(side, stream, piece);
  finish(side, choice, piece, outcome);
  return outcome;
}

Outcome run_passive(unsigned choice, Bytes stream, std::size_t piece) {
  Outcome outcome;
  PassiveHandshake side(options_of(choice));
  outcome.consumed = feed(side, stream, piece);
  if (side.requested()) {
    require(!side.failed());
    const std::string data = "answer";
    const auto bytes = std::as_bytes(std::span(data));
    if ((choice & reject_option) != 0) {
      side.reject(bytes);
    } else {
      side.accept(8, own_ord, bytes);
    }
  }
  finish(side, choice, piece, outcome);
  return outcome;
}

Outcome run(unsigned choice, Bytes stream, std::size_t piece) {
  return (choice & passive_option) != 0 ? run_passive(choice, stream, piece)
                                        : run_active(choice, stream, piece);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  if (size < 2) return 0;
  const auto stream = fuzz::input_bytes(data, size).subspan(2);
  const auto whole = fuzz::run(data[0], stream, SIZE_MAX);
  fuzz::require(fuzz::run(data[0], stream, 1) == whole);
  fuzz::require(fuzz::run(data[0], stream, 1U + data[1]) == whole);
  return 0;
}
