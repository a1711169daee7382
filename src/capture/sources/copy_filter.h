// Recognises copies of a packet that the capture itself made: a mirror port that copies a packet
// where it enters a switch and where it leaves it, or a capture of all interfaces of a machine.
// They are not retransmissions, and no property of the traffic follows from them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "weft/capture/traffic.hpp"

namespace weft::capture {

class CopyFilter {
 public:
  // A hash of everything in which a packet and its retransmission may differ.
  class Key {
   public:
    Key& add(std::uint64_t value) {
      constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15;
      value_ = (value_ ^ value) * golden_ratio;
      value_ ^= value_ >> 32;
      return *this;
    }
    [[nodiscard]] std::uint64_t value() const { return value_; }

   private:
    std::uint64_t value_ = 1;
  };

  // Returns whether an equal packet was captured just before: at most 64 frames and 500 µs ago.
  // That is longer than a switch needs, and shorter than a sender waits.
  bool is_copy(const Key& key, const Stamp& stamp) {
    constexpr std::uint64_t max_frames = 64;
    constexpr std::int64_t max_ns = 500'000;
    Set& set = sets_[key.value() % sets_.size()];
    for (const Entry& entry : set.entries) {
      const std::int64_t age_ns = stamp.time_ns - entry.stamp.time_ns;
      if (entry.key == key.value() && entry.epoch == epoch_ &&
          stamp.frame - entry.stamp.frame <= max_frames && age_ns >= 0 && age_ns <= max_ns) {
        return true;
      }
    }
    set.entries[set.next++ % set.entries.size()] = {key.value(), epoch_, stamp};
    return false;
  }
  // A packet may be sent again from now on: what was captured before is no reason to take a packet
  // for a copy.
  void begin_anew() { ++epoch_; }

 private:
  struct Entry {
    std::uint64_t key = 0;
    std::uint64_t epoch = 0;
    Stamp stamp;
  };

  // The packets whose keys are equal in some bits; the oldest is replaced.
  struct Set {
    std::array<Entry, 4> entries{};
    std::size_t next = 0;
  };

  std::array<Set, 128> sets_{};
  std::uint64_t epoch_ = 1;
};

// Measures how regularly the packets of a sender come twice. Where nothing in a packet tells a copy
// from a retransmission, it is a copy only if most packets of its sender have one, as in a capture
// that has everything twice.
class CopyRates {
 public:
  // Counts a packet of the sender with this hash; `again`: an equal one was captured just before.
  // Returns whether its packets come twice regularly.
  bool add(std::size_t sender, bool again) {
    // What is long ago counts less.
    constexpr std::uint32_t most_counted = 1024;
    Rate& rate = rates_[sender % rates_.size()];
    if (rate.sender != sender) rate = {.sender = sender};
    ++(again ? rate.copies : rate.originals);
    if (rate.originals >= most_counted) {
      rate.originals /= 2;
      rate.copies /= 2;
    }
    return 2 * rate.copies >= rate.originals;
  }

 private:
  struct Rate {
    std::size_t sender = 0;
    std::uint32_t originals = 0;
    std::uint32_t copies = 0;
  };

  std::array<Rate, 1024> rates_{};  // another sender with the same place begins anew
};

}  // namespace weft::capture
