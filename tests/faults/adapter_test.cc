// The list of a smaller adapter's limits.
#include <gtest/gtest.h>

#include <string>

#include "faults/adapter.h"

namespace weft::faults {
namespace {

std::string error_of(std::string_view text) {
  const auto limits = parse_adapter(text);
  return limits.ok() ? "no error" : limits.error();
}

TEST(AdapterLimits, AreThoseOfTheDeviceByDefault) {
  const AdapterLimits limits;
  EXPECT_FALSE(limits.restricted());
  for (const CapabilityName& name : capability_names()) {
    EXPECT_EQ(limits.most(name.capability), name.most) << name.name;
  }
}

TEST(AdapterLimits, ReadsEachName) {
  for (const CapabilityName& name : capability_names()) {
    const auto limits = parse_adapter(std::string(name.name) + "=" + std::to_string(name.least));
    ASSERT_TRUE(limits.ok()) << limits.error();
    EXPECT_EQ(limits->most(name.capability), name.least) << name.name;
    EXPECT_TRUE(limits->restricted()) << name.name;
  }
}

TEST(AdapterLimits, ReadsSeveralWithBlanks) {
  const auto limits = parse_adapter("max_qp=8, max_mr_size = 64MiB ,atomics=0");
  ASSERT_TRUE(limits.ok()) << limits.error();
  EXPECT_EQ(limits->most(Capability::queue_pairs), 8U);
  EXPECT_EQ(limits->most(Capability::region_bytes), 64U << 20);
  EXPECT_FALSE(limits->allows(Capability::atomics));
  EXPECT_TRUE(limits->allows(Capability::immediates));
}

TEST(AdapterLimits, PointsAtMistakes) {
  EXPECT_EQ(error_of("max_qp=8,max_sge=33"),
            "max_sge= must be a number from 1 to 32, which this device has\n"
            "  max_qp=8,max_sge=33\n"
            "                   ^");
  EXPECT_EQ(error_of("max_qp=8,max_qp=9"),
            "max_qp= occurs twice\n"
            "  max_qp=8,max_qp=9\n"
            "           ^");
  EXPECT_EQ(error_of("max_qp"),
            "must be NAME=VALUE, separated by commas\n"
            "  max_qp\n"
            "  ^");
  EXPECT_TRUE(error_of("max_qb=8").starts_with("must be one of max_qp=, max_qp_wr="));
  EXPECT_TRUE(error_of("max_qp=8,").starts_with("must be NAME=VALUE"));
  EXPECT_TRUE(error_of("").starts_with("must be NAME=VALUE"));
  EXPECT_TRUE(error_of("max_qp=").starts_with("max_qp= must be"));
  EXPECT_TRUE(error_of("max_qp=-1").starts_with("max_qp= must be"));
  EXPECT_TRUE(error_of("max_qp=8KiB").starts_with("max_qp= must be"));
  EXPECT_TRUE(error_of("max_cq=0").starts_with("max_cq= must be"));
  EXPECT_TRUE(error_of("atomics=2").starts_with("atomics= must be"));
  EXPECT_TRUE(error_of("max_mr_size=1MB").starts_with("max_mr_size= must be"));
}

}  // namespace
}  // namespace weft::faults
