// Quantities as text: singular and plural, and nothing about what is 0.
#include "capture/text/units.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/capture/quality.hpp"

namespace weft::capture::test {
namespace {

TEST(Units, CountsHaveASingularAndAPlural) {
  EXPECT_EQ(count_text(1, "packet"), "1 packet");
  EXPECT_EQ(count_text(2, "packet"), "2 packets");
  EXPECT_EQ(times_text(1), "once");
  EXPECT_EQ(times_text(3), "3 times");
}

TEST(Units, OrdinalsHaveTheirEndings) {
  const std::vector<std::pair<std::uint64_t, std::string>> expected{
      {1, "1st"},   {2, "2nd"},   {3, "3rd"},   {4, "4th"},     {11, "11th"},  {12, "12th"},
      {13, "13th"}, {21, "21st"}, {22, "22nd"}, {103, "103rd"}, {112, "112th"}};
  for (const auto& [number, text] : expected) EXPECT_EQ(ordinal_text(number), text);
}

TEST(Units, TheQualityOfACaptureLeavesOutWhatIsZero) {
  CaptureQuality bytes;
  bytes.missing_bytes = 47'100;
  EXPECT_TRUE(describe(bytes).at(0).starts_with("47.1 kB are missing, ")) << describe(bytes)[0];
  CaptureQuality packet;
  packet.missing_packets = 1;
  EXPECT_TRUE(describe(packet).at(0).starts_with("1 packet is missing, ")) << describe(packet)[0];
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
