// Advertisements to a peer whose ring has another size than ours.
#include "connection/control.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "connection/control_wire.h"
#include "support/device.h"

namespace weft::connection::detail {
namespace {

constexpr std::uint64_t peer_at = 0x10000;
constexpr Advertisement advertisement{};

class ControlRing : public testing::TestWithParam<std::uint16_t> {
 protected:
  ControlRing() { control_.set_peer({peer_at, ControlLayout::bytes(slots_), 7}, slots_); }
  // Announces one more. Returns where its record goes in the peer's region.
  std::optional<std::uint64_t> announce() {
    const auto write = control_.announce(advertisement);
    if (!write) return std::nullopt;
    control_.note_announced();
    return write->to.address() - peer_at;
  }
  // The peer writes how many records it has taken.
  void peer_has_taken(std::uint64_t count) {
    const CountBytes bytes = count_to_bytes(count);
    std::memcpy(reinterpret_cast<void*>(control_.region().address()), bytes.data(), bytes.size());
  }

  const std::uint16_t slots_ = GetParam();
  Control control_{test::open_device().create_domain()};
};

// The peer looks for record N at (N - 1) modulo the number of slots that it has announced.
TEST_P(ControlRing, RecordsGoRoundInTheWholeRingOfThePeer) {
  const std::uint32_t most = std::min(slots_, Control::ring_slots);
  for (std::uint32_t number = 1; number <= 3U * slots_; ++number) {
    ASSERT_EQ(announce(), ControlLayout::record_offset(number, slots_)) << number;
    if (number % most == 0) {
      EXPECT_EQ(announce(), std::nullopt) << "more than both rings have room for";
      peer_has_taken(number);
    }
  }
}

// What could not be posted is written once more.
TEST_P(ControlRing, ARecordThatWasNotPostedHasTheNextOnesPlace) {
  const auto first = control_.announce(advertisement);
  ASSERT_TRUE(first);
  const auto again = control_.announce(advertisement);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->to.address(), first->to.address());
}

// A peer with a small ring announces no more than that many records before it reads our count.
TEST_P(ControlRing, ThePeerLearnsOfTakenRecordsBeforeItsRingIsFull) {
  const std::uint32_t most = std::min(slots_, Control::ring_slots);
  const auto region = control_.region();
  bool reported = false;
  for (std::uint32_t number = 1; number <= most; ++number) {
    const auto bytes = ControlRecord{number, {}, 0}.to_bytes();
    const auto offset = ControlLayout::record_offset(number, Control::ring_slots);
    std::memcpy(reinterpret_cast<void*>(region.address() + offset), bytes.data(), bytes.size());
    ASSERT_TRUE(control_.take()) << number;
    reported |= control_.report().has_value();
  }
  EXPECT_TRUE(reported);
}

INSTANTIATE_TEST_SUITE_P(Slots, ControlRing, testing::Values(1, 3, 64, 65, 128, 1000));

}  // namespace
}  // namespace weft::connection::detail
