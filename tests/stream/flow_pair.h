// Two flows wired back to back in memory, with every freedom a network and two programs have: who
// does what next is drawn from a seed. Checks what must hold at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "stream/flow.h"
#include "support/random.h"

namespace weft::stream::detail {

struct FlowPairSizes {
  std::uint32_t send_ring_bytes = 0;
  std::uint32_t receive_ring_bytes = 0;
  std::uint32_t sends = 0;
  std::uint32_t receives = 0;
};

class FlowPair {
 public:
  // Both sides have the same sizes; each sends that many bytes and then ends.
  FlowPair(const FlowPairSizes& sizes, std::uint64_t bytes_from_a, std::uint64_t bytes_from_b,
           std::uint64_t seed);

  // Until nothing more can happen. With `greedy` both programs read all there is, at once.
  void run(bool greedy = false);
  // All bytes arrived, in order, then the end; and no message is left anywhere.
  [[nodiscard]] bool complete() const;
  // Messages that one side has sent.
  struct Counts {
    std::uint64_t data = 0;
    std::uint64_t updates = 0;
    std::uint64_t acknowledgements = 0;
  };
  [[nodiscard]] const Counts& counts(int side) const { return sides_[side].counts; }

 private:
  struct Message {
    std::uint32_t word = 0;
    std::uint32_t at = 0;  // in the receiver's ring
    std::vector<std::uint8_t> bytes;
  };
  struct Completion {
    bool control = false;
    std::uint32_t held = 0;
  };
  struct Side {
    explicit Side(const FlowSizes& sizes) : flow(sizes), ring(sizes.receive_ring_bytes) {}
    Flow flow;
    std::vector<std::uint8_t> ring;
    std::deque<Message> outgoing;
    std::deque<Completion> completions;
    std::uint64_t to_send = 0;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    Counts counts;
  };

  // Each answers whether something was done.
  bool send(Side& from);
  static void post(Side& from, Message message);
  bool control(Side& from);
  bool deliver(Side& from, Side& to);
  bool complete_one(Side& side);
  bool read(Side& side, bool greedy);
  bool step(int action, bool greedy);

  test::Random random_;
  std::vector<Side> sides_;
};

}  // namespace weft::stream::detail
