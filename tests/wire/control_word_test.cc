#include "wire/control_word.h"

#include <gtest/gtest.h>

#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

TEST(ControlWords, HaveTheirPlacesAndAreInNetworkOrder) {
  EXPECT_EQ(control_word_offset(ControlWord::executed), 0U);
  EXPECT_EQ(control_word_offset(ControlWord::placed), 32U);
  EXPECT_EQ(control_word_to_bytes(0x0102030405060708), "0102030405060708"_hex);
  EXPECT_EQ(control_word_from_bytes("0102030405060708"_hex), 0x0102030405060708U);
}

TEST(ControlWords, UnknownOnesSurviveAsValues) {
  for (std::uint64_t at = 0; at < control_region_bytes; at += control_word_bytes) {
    EXPECT_EQ(control_word_offset(control_word_at(at)), at);
  }
}

}  // namespace
}  // namespace weft::wire
