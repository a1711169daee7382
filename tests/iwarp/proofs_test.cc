// When a proof is wanted, when a probe is sent for it, and what a response proves.
#include "iwarp/proofs.h"

#include <gtest/gtest.h>

namespace weft::iwarp {
namespace {

TEST(Proofs, NothingIsWantedAtFirst) {
  const Proofs proofs;
  EXPECT_FALSE(proofs.lacking());
  EXPECT_FALSE(proofs.probe_useful());
  EXPECT_FALSE(proofs.overdue());
  EXPECT_FALSE(proofs.covers(0));
}

TEST(Proofs, CoverTheRequestsBeforeAnIndex) {
  Proofs proofs;
  proofs.prove(3);
  EXPECT_TRUE(proofs.covers(2));
  EXPECT_FALSE(proofs.covers(3));
}

// A response to an old request proves nothing new.
TEST(Proofs, AreNeverTakenBack) {
  Proofs proofs;
  proofs.prove(3);
  proofs.prove(1);
  EXPECT_EQ(proofs.proven(), 3U);
  proofs.want(5);
  proofs.want(4);
  proofs.prove(4);
  EXPECT_TRUE(proofs.lacking());
  proofs.prove(5);
  EXPECT_FALSE(proofs.lacking());
}

TEST(Proofs, OneProbeIsOutstandingAtATime) {
  Proofs proofs;
  proofs.want(1);
  EXPECT_TRUE(proofs.probe_useful());
  proofs.probe_sent();
  proofs.want(2);
  EXPECT_FALSE(proofs.probe_useful());
  proofs.probe_answered();
  proofs.prove(1);
  EXPECT_TRUE(proofs.probe_useful());
}

TEST(Proofs, AReadServesOnlyWhatIsBeforeIt) {
  Proofs proofs;
  proofs.want(2);
  EXPECT_TRUE(proofs.wanted_behind(1));
  EXPECT_FALSE(proofs.wanted_behind(2));
}

TEST(Proofs, AreOverdueAfterManyBytes) {
  Proofs proofs;
  proofs.want(1);
  proofs.count_unproven(Proofs::unproven_limit_bytes - 1);
  EXPECT_FALSE(proofs.overdue());
  proofs.count_unproven(1);
  EXPECT_TRUE(proofs.overdue());
}

TEST(Proofs, AreNotOverdueWhereNoneIsWanted) {
  Proofs proofs;
  proofs.count_unproven(Proofs::unproven_limit_bytes);
  EXPECT_FALSE(proofs.overdue());
}

// The response to any read proves what was sent before it, so counting starts again.
TEST(Proofs, EachReadStartsTheCountAgain) {
  for (const bool probe : {false, true}) {
    Proofs proofs;
    proofs.want(1);
    proofs.count_unproven(Proofs::unproven_limit_bytes);
    probe ? proofs.probe_sent() : proofs.read_sent();
    EXPECT_FALSE(proofs.overdue());
  }
}

}  // namespace
}  // namespace weft::iwarp
