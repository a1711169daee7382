// The rings and credits of one stream, whose peer sends any words in any order while the program
// sends and reads. The target checks that no position leaves its ring, that the peer is never
// believed to have more room than it has announced, and that no more messages are counted than
// there were receives for them.
//
// The first eight bytes are the sizes; each call has five bytes: which one, and a word.
#include <algorithm>
#include <deque>
#include <optional>

#include "fuzz/fuzz.h"
#include "stream/flow_control.h"

namespace weft::fuzz {
namespace {

using namespace stream::detail;

FlowSizes sizes_of(Bytes input) {
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(input[i]); };
  return {.send_ring_bytes = 1 + at(0) * 3,
          .sends = 1 + at(1),
          .peer_ring_bytes = 1 + at(2) * 5,
          .peer_receives = 1 + at(3),
          .receive_ring_bytes = 1 + at(4) * 7,
          .receives = 1 + at(5),
          .send_part_bytes = at(6) % 16,
          .peer_part_bytes = at(6) / 16,
          .receive_part_bytes = at(7)};
}

class Stream {
 public:
  explicit Stream(const FlowSizes& sizes) : flow_(sizes) {}

  void carry_out(unsigned call, std::uint32_t word) {
    switch (call % 9) {
      case 0:
        return receive(word, std::nullopt);
      case 1:
        return receive(word, value_of(word));
      case 2:
        return receive(word & 0x7FFF'FFFF, word >> 31 ? word & 0xFF : 0);
      case 3:
        return sent(flow_.take(word), true);
      case 4:
        return sent(flow_.take_direct(word), false);
      case 5:
        return read(word);
      case 6:
        return control();
      case 7:
        return complete();
      default:
        return rest(word);
    }
  }
  void check() const {
    const auto& sizes = flow_.sizes();
    require(flow_.readable() <= sizes.receive_ring_bytes);
    require(flow_.peer_credits() <= sizes.peer_receives);
    require(flow_.peer_free() <= sizes.peer_ring_bytes);
    const auto unread = flow_.unread();
    require(unread.at <= sizes.receive_ring_bytes);
    require(unread.bytes <= sizes.receive_ring_bytes - unread.at);
    require(used_receives_ <= sizes.receives);
  }

 private:
  void receive(std::uint32_t word, std::optional<std::uint32_t> bytes) {
    const std::uint32_t readable = flow_.readable();
    if (!flow_.received(word, bytes)) {
      require(flow_.readable() == readable);
      return;
    }
    // These have receives of their own.
    const bool own = is_update(word) || kind_of(word) == Kind::end || kind_of(word) == Kind::wake;
    if (!own) ++used_receives_;
  }
  void sent(const Piece& piece, bool from_ring) {
    const auto& sizes = flow_.sizes();
    require(piece.to <= sizes.peer_ring_bytes);
    require(piece.bytes <= sizes.peer_ring_bytes - piece.to);
    if (from_ring) return sent_from_ring(piece);
    if (piece.bytes > 0) under_way_.push_back(0);
  }
  void sent_from_ring(const Piece& piece) {
    const auto& sizes = flow_.sizes();
    require(piece.from <= sizes.send_ring_bytes);
    require(piece.bytes <= sizes.send_ring_bytes - piece.from);
    if (piece.bytes > 0) under_way_.push_back(piece.bytes);
  }
  void read(std::uint32_t bytes) { flow_.read(std::min(bytes, flow_.unread().bytes)); }
  void control() {
    const auto word = flow_.next_control();
    if (!word) return;
    if (is_update(*word)) {
      require(update_of(*word).receives <= used_receives_);
      used_receives_ -= update_of(*word).receives;
    }
    ++control_under_way_;
  }
  void complete() {
    if (control_under_way_ > 0) {
      --control_under_way_;
      flow_.control_sent();
    }
    if (under_way_.empty()) return;
    flow_.sent(under_way_.front());
    under_way_.pop_front();
  }
  void rest(std::uint32_t word) {
    if (word % 16 == 0) return flow_.finish();
    if (word % 2 == 0 && flow_.take_growth()) under_way_.push_back(0);
    if (word % 2 == 1) sent_from_ring(flow_.take_mapped(word >> 1));
  }

  FlowControl flow_;
  std::deque<std::uint32_t> under_way_;  // bytes of our send ring
  std::uint32_t control_under_way_ = 0;
  std::uint32_t used_receives_ = 0;  // that no update has returned
};

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  if (size < 8) return 0;
  auto input = fuzz::input_bytes(data, size);
  fuzz::Stream stream(fuzz::sizes_of(input));
  for (input = input.subspan(8); input.size() >= 5; input = input.subspan(5)) {
    const auto word = load_be<std::uint32_t>(input.data() + 1);
    stream.carry_out(std::to_integer<unsigned>(input[0]), word);
    stream.check();
  }
  return 0;
}
