// Puts the requests of one queue pair into the order of their packet sequence numbers. Early
// packets wait, repeated ones are reported as repetitions, and missing ones as lost (InfiniBand
// Architecture Specification, volume 1, §9.7).
//
// Without a first PSN from the connection manager, the first captured packet need not be the first
// one sent, and its acknowledgement may have been captured before a lower PSN. Then the first
// requests wait, for a number of packets or for a time, and the lowest PSN of them begins the
// order. If the capture shows signs of reordering, they wait until a packet that the capture holds
// late would have come.
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
  // Receives the requests in order.
  class Reader {
   public:
    virtual ~Reader() = default;
    // Receives the next request, and returns how many PSNs it takes. For a Read these are the
    // packets of its response; returns nothing if their number is unknown.
    virtual std::optional<std::uint64_t> on_next(const IbSegment& segment) = 0;
    virtual void on_repeat(const IbSegment& segment) = 0;
    // `packets` requests before `next` are not in the capture. Called before the on_next of
    // `next`.
    virtual void on_lost(const IbSegment& next, std::uint64_t packets) = 0;
    // `packets` requests at the end, which the responder has acknowledged, are not in the capture.
    virtual void on_end_lost(std::uint64_t packets) = 0;
    // `segment` was missing, and later ones have waited for it for `delay_ns`.
    virtual void on_late(const IbSegment& segment, std::int64_t delay_ns) = 0;
    // Returns how many PSNs a Read takes for which on_next returned nothing, if that is certain
    // now. `next` is the next captured request, `distance` PSNs after it.
    virtual std::optional<std::uint64_t> width_before(const IbSegment& next,
                                                      std::uint64_t distance) = 0;
    // The same when nothing more is waited for: returns the number that is likely.
    virtual std::uint64_t guess_width(const IbSegment& next, std::uint64_t distance) = 0;
  };

  IbOrder(const Limits& limits, Budget& budget, Reader& reader)
      : limits_(limits), budget_(budget), reader_(reader) {}
  IbOrder(const IbOrder&) = delete;
  IbOrder& operator=(const IbOrder&) = delete;
  ~IbOrder() { budget_.give_back(held_bytes_); }

  // Sets the PSN of the first packet, unless it is known. The message with it may come late: then
  // it ends the wait for lower PSNs.
  void begin(std::uint32_t psn);
  // Call it before add(). Returns whether this packet shows that the lowest captured PSN is the
  // first one; then stored packets may be ready, which come before this one.
  bool close_origin_before(const IbSegment& segment);
  // Passes a packet on, or stores it until it is next.
  void add(const IbSegment& segment);
  // Returns the frame of a stored packet that is next.
  [[nodiscard]] std::optional<std::uint64_t> ready();
  // Passes on the packet of ready().
  void pass_on_ready();
  // The responder has acknowledged everything up to and including `psn`.
  void acknowledge(std::uint32_t psn);
  // The responder lacks `psn`: the requester will repeat it and everything after it.
  void on_retransmission_requested(std::uint32_t psn);
  // Applies the timeouts to missing packets. Call it for each packet of the connection.
  // `now_ns` is the time of that packet.
  void watch(std::int64_t now_ns);
  // Stops waiting for what is missing before the first stored packet, and passes that packet on.
  void give_up();
  // Ends the input. The caller must have called give_up() until nothing waits.
  void finish();
  // For UC: there are no acknowledgements and no retransmissions.
  void set_unreliable() { unreliable_ = true; }

  [[nodiscard]] bool begun() const { return next_ != 0; }
  // Returns whether the PSN is so close to the next one that it can belong to this queue pair, even
  // if requests were lost or repeated.
  [[nodiscard]] bool near(std::uint32_t psn) const;
  // Returns whether `psn` can be the first one: no request before it was seen.
  [[nodiscard]] bool may_begin(std::uint32_t psn) const {
    return !begun() || (near(psn) && position_of(psn) <= first_);
  }
  // Returns whether the first request has this PSN.
  [[nodiscard]] bool begins_with(std::uint32_t psn) const {
    return begun() && position_of(psn) == first_;
  }
  // Returns whether the request was seen: delivered or waiting.
  [[nodiscard]] bool covers(std::uint32_t psn) const;
  // Returns whether the request, or a Read of which it repeats the rest, is waiting.
  [[nodiscard]] bool stores(const IbSegment& segment) const {
    const std::uint64_t position = position_of(segment.psn());
    return held_.contains(position) || continues_read(segment, position);
  }
  // Returns whether the request was delivered or given up.
  [[nodiscard]] bool passed(std::uint32_t psn) const { return begun() && position_of(psn) < next_; }
  [[nodiscard]] bool waiting() const { return !held_.empty(); }
  // Returns whether a request waits, or one is missing that the responder has acknowledged.
  [[nodiscard]] bool waits() const { return waiting() || (begun() && acknowledged_ > next_); }
  // Returns whether something waits for a missing packet.
  [[nodiscard]] bool blocked() { return waiting() && !ready(); }
  // Returns whether the packet that waits for a missing one was captured before `frame`.
  [[nodiscard]] bool blocked_before(std::uint64_t frame) {
    return blocked() && held_.begin()->second.get().stamp.frame < frame;
  }

 private:
  [[nodiscard]] std::uint64_t position_of(std::uint32_t psn) const {
    const auto here = static_cast<std::uint32_t>(next_ & wire::psn_mask);
    return next_ + static_cast<std::uint64_t>(std::int64_t{wire::psn_distance(here, psn)});
  }
  [[nodiscard]] std::uint64_t highest() const;
  void note_width(std::uint64_t position, std::uint64_t width);
  bool settle(const IbSegment& next, std::uint64_t position, bool guess = false);
  void pass_on(const IbSegment& segment, std::uint64_t position);
  void pass_on_first();
  void hold(const IbSegment& segment, std::uint64_t position);
  [[nodiscard]] bool continues_read(const IbSegment& segment, std::uint64_t position) const;
  void hold_at_origin(const IbSegment& segment);
  [[nodiscard]] bool acknowledged_without_gaps() const;

  const Limits& limits_;
  Budget& budget_;
  Reader& reader_;
  std::uint64_t first_ = 0;  // position of the first request
  std::uint64_t next_ = 0;   // position of the next request; 0: not begun
  bool uncertain_ = false;   // the last request, at next_ - 1, takes an unknown number of PSNs
  std::uint64_t uncertain_end_ = 0;  // of that request, if it takes as many as possible
  // Positions of the last Reads whose responses have more PSNs than may be under way otherwise.
  std::uint64_t wide_begin_ = 0;  // of the one before the last, if it is not far from it
  std::uint64_t last_wide_ = 0;
  std::uint64_t wide_end_ = 0;  // after the last one; 0: there was none
  // The first request is not certain: nothing is passed on, and next_ may still move back.
  bool origin_open_ = false;
  std::int64_t origin_since_ns_ = 0;  // time of the first captured request
  bool reordered_ = false;  // while the origin is open: requests or acknowledgements went back
  std::uint64_t acknowledged_ = 0;  // position after the last acknowledged one
  std::optional<std::uint64_t> retransmission_from_;
  std::multimap<std::uint64_t, HeldIbSegment> held_;  // by position; repetitions come second
  std::size_t held_bytes_ = 0;
  std::uint64_t waited_packets_ = 0;
  bool unreliable_ = false;
};

}  // namespace weft::capture
