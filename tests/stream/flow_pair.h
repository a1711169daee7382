// Two FlowControls connected in memory. A seed decides which of the possible events of network and
// programs happens next. Checks the invariants after each event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "stream/flow_control.h"
#include "stream/reports.h"
#include "support/random.h"

namespace weft::stream::detail {

struct FlowPairSizes {
  std::uint32_t send_ring_bytes = 0;
  std::uint32_t receive_ring_bytes = 0;
  std::uint32_t sends = 0;
  std::uint32_t receives = 0;
  std::uint32_t part_bytes = 0;  // of each ring, that is used at first; 0: all
};

class FlowPair {
 public:
  // Both sides have the same sizes. Each sends this many bytes, and then the end.
  FlowPair(const FlowPairSizes& sizes, std::uint64_t bytes_from_a, std::uint64_t bytes_from_b,
           std::uint64_t seed);

  // Runs until no event is possible. With `greedy` both programs read all bytes at once.
  void run(bool greedy = false);
  // Whether all bytes have arrived in order, then the end, and no message is under way.
  [[nodiscard]] bool complete() const;
  // The number of messages that one side has sent.
  struct Counts {
    std::uint64_t data = 0;
    std::uint64_t updates = 0;
    std::uint64_t acknowledgements = 0;
    std::uint64_t growths = 0;
  };
  [[nodiscard]] const Counts& counts(int side) const { return sides_[side].counts; }
  [[nodiscard]] const FlowControl& flow(int side) const { return sides_[side].flow; }

 private:
  struct Message {
    std::uint32_t word = 0;
    std::uint32_t at = 0;  // in the receiver's ring
    std::vector<std::uint8_t> bytes;
  };
  struct Side {
    explicit Side(const FlowSizes& sizes);
    FlowControl flow;
    Reports reports;
    std::vector<std::uint8_t> ring;
    std::deque<Message> outgoing;
    std::deque<std::optional<Held>> completions;  // of each message what it reports
    std::uint64_t to_send = 0;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    Counts counts;
  };

  // Each returns whether it has done anything.
  bool send(Side& from);
  // `may_wait`: see Reports::add().
  static void post(Side& from, Message message, const Held& held, std::uint32_t may_wait);
  bool control(Side& from);
  bool deliver(Side& from, Side& to);
  bool complete_one(Side& side);
  bool read(Side& side, bool greedy);
  bool step(int action, bool greedy);

  test::Random random_;
  std::vector<Side> sides_;
};

}  // namespace weft::stream::detail
