// The requests of one queue pair, put into the order of their packet sequence numbers: what came
// too early waits, what came twice is a repeat, what never came is said to be lost (InfiniBand
// Architecture Specification, volume 1, §9.7).
//
// Positions count PSNs in 64 bits, so that they never wrap.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "capture/infiniband/ib_segment.h"
#include "weft/capture/budget.hpp"
#include "weft/capture/limits.hpp"

namespace weft::capture {

class IbOrder {
 public:
  using Limits = InfinibandLimits::Order;
  // Who takes the packets.
  class Reader {
   public:
    virtual ~Reader() = default;
    // The next one. Returns how many PSNs it takes: of a Read, as many as the answer has packets,
    // nothing where that is not known yet.
    virtual std::optional<std::uint64_t> on_next(const IbSegment& segment) = 0;
    virtual void on_repeat(const IbSegment& segment) = 0;
    // So many before `behind` are not in the capture. Told before the next on_next.
    virtual void on_lost(const IbSegment& behind, std::uint64_t packets) = 0;
    // So many at the end, which the responder has acknowledged.
    virtual void on_end_lost(std::uint64_t packets) = 0;
    // How many PSNs the Read takes of which on_next did not know it, now that the request behind it
    // stands `distance` PSNs further on.
    virtual std::uint64_t settle_width(std::uint64_t distance) = 0;
  };

  IbOrder(const Limits& limits, Budget& budget, Reader& reader)
      : limits_(limits), budget_(budget), reader_(reader) {}
  IbOrder(const IbOrder&) = delete;
  IbOrder& operator=(const IbOrder&) = delete;
  ~IbOrder() { budget_.give_back(held_bytes_); }

  // The first packet will have this PSN.
  void begin(std::uint32_t psn);
  // Passes it on, or keeps it until its turn has come.
  void add(const IbSegment& segment);
  // The frame of a packet that was kept and whose turn it is.
  [[nodiscard]] std::optional<std::uint64_t> ready();
  // Passes that one on.
  void pass_on_ready();
  // The responder has everything up to and with `psn`.
  void acknowledge(std::uint32_t psn);
  // The responder lacks `psn`: it will be sent again, and what was sent behind it too.
  void asked_again(std::uint32_t psn);
  // To be called for each packet of the connection: gives up on what will not come.
  void watch();
  // Gives up on what is missing before the first that waits, and passes that one on.
  void give_up();
  // Nothing comes any more, and nothing waits.
  void finish();
  // Nobody acknowledges, and nothing is repeated.
  void set_unreliable() { unreliable_ = true; }

  [[nodiscard]] bool begun() const { return next_ != 0; }
  // A request with this PSN was seen, or could be the next one but for some that are lost.
  [[nodiscard]] bool near(std::uint32_t psn) const;
  // Was seen: delivered, or waiting.
  [[nodiscard]] bool covers(std::uint32_t psn) const;
  // Delivered, or lost.
  [[nodiscard]] bool passed(std::uint32_t psn) const { return begun() && position_of(psn) < next_; }
  [[nodiscard]] bool waiting() const { return !held_.empty(); }
  // Something waits for what is missing.
  [[nodiscard]] bool blocked() { return waiting() && !ready(); }

 private:
  [[nodiscard]] std::uint64_t position_of(std::uint32_t psn) const {
    const auto here = static_cast<std::uint32_t>(next_ & wire::psn_mask);
    return next_ + static_cast<std::uint64_t>(std::int64_t{wire::psn_distance(here, psn)});
  }
  void settle(std::uint64_t position);
  void pass_on(const IbSegment& segment, std::uint64_t position);
  void pass_on_first();
  void hold(const IbSegment& segment, std::uint64_t position);

  const Limits& limits_;
  Budget& budget_;
  Reader& reader_;
  std::uint64_t first_ = 0;         // position
  std::uint64_t next_ = 0;          // 0: not begun
  bool uncertain_ = false;          // how many PSNs the last one, at next_ - 1, takes
  std::uint64_t acknowledged_ = 0;  // position behind it
  std::optional<std::uint64_t> asked_again_;
  std::map<std::uint64_t, HeldIbSegment> held_;
  std::size_t held_bytes_ = 0;
  std::uint64_t waited_packets_ = 0;
  bool unreliable_ = false;
};

}  // namespace weft::capture
