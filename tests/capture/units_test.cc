// Quantities as text: singular and plural, and nothing about what is 0.
#include "capture/text/units.h"

#include <gtest/gtest.h>

namespace weft::capture::test {
namespace {

TEST(Units, CountsHaveASingularAndAPlural) {
  EXPECT_EQ(count_text(1, "packet"), "1 packet");
  EXPECT_EQ(count_text(2, "packet"), "2 packets");
  EXPECT_EQ(times_text(1), "once");
  EXPECT_EQ(times_text(3), "3 times");
}

TEST(Units, AmountsLeaveOutWhatIsZero) {
  EXPECT_EQ(amount_text(0, 47'100), "47.1 kB");
  EXPECT_EQ(amount_text(1, 0), "1 packet");
  EXPECT_EQ(amount_text(2, 1'000), "2 packets and 1.00 kB");
  EXPECT_EQ(again_text(1, 10), "10 B again, in 1 packet");
  EXPECT_EQ(again_text(53, 0), "53 packets again");
}

}  // namespace
}  // namespace weft::capture::test
