#include "cm/depths.h"

#include <gtest/gtest.h>

#include "wire/mpa.h"

namespace weft::cm {
namespace {

TEST(Depths, DeviceAddsItsOwnReadAndHidesIt) {
  EXPECT_EQ(to_wire(0), 1);
  EXPECT_EQ(to_wire(127), 128);
  EXPECT_EQ(to_wire(128), 128);
  EXPECT_EQ(to_event(1), 0);
  EXPECT_EQ(to_event(0), 0);
  EXPECT_EQ(to_event(128), 127);
  EXPECT_EQ(to_event(1000), 127);
  EXPECT_EQ(to_event(wire::MpaEnhanced::no_negotiation), 0);
}

struct Case {
  const char* what;
  std::uint16_t wire_ord;  // negotiated
  std::uint16_t asked;
  bool acknowledge;  // wanted
  std::uint16_t share;
  bool acknowledged;
};

class Share : public testing::TestWithParam<Case> {};

TEST_P(Share, OfTheProgram) {
  const Case& given = GetParam();
  const iwarp::Negotiated negotiated{.ird_ord_negotiated = true, .ord = given.wire_ord};
  const auto parameters = stream_parameters(true, negotiated, given.asked, given.acknowledge);
  EXPECT_EQ(parameters.ord, given.share) << given.what;
  EXPECT_EQ(parameters.acknowledge, given.acknowledged) << given.what;
  EXPECT_EQ(parameters.wire_ord, given.wire_ord) << given.what;
}

INSTANTIATE_TEST_SUITE_P(
    Depths, Share,
    testing::Values(Case{"the peer is Weft", 5, 4, true, 4, true},
                    Case{"the peer holds fewer", 3, 4, true, 2, true},
                    Case{"the program wants none", 1, 0, true, 0, true},
                    Case{"one read for both", 1, 4, true, 1, true},
                    Case{"the peer grants none", 0, 4, true, 0, false},
                    Case{"nobody wants acknowledgement", 4, 4, false, 4, false},
                    Case{"the program asked for less than there is", 9, 2, true, 2, true}));

TEST(Depths, RevisionOneKnowsOnlyWhatTheProgramAskedFor) {
  const iwarp::Negotiated negotiated{.ird_ord_negotiated = false, .ord = 128};
  const auto some = stream_parameters(true, negotiated, 4, true);
  EXPECT_EQ(some.wire_ord, 4);
  EXPECT_EQ(some.ord, 3);
  EXPECT_TRUE(some.acknowledge);
  const auto none = stream_parameters(true, negotiated, 0, true);
  EXPECT_EQ(none.ord, 0);
  EXPECT_FALSE(none.acknowledge);
}

}  // namespace
}  // namespace weft::cm
