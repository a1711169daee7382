// For tests of connections within one host.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

#include "device/pair_fixture.h"

namespace weft::device {

// The ends of a Pair leave TCP, also where the run names no carrier.
class SameHostTest : public testing::Test {
 protected:
  void SetUp() override { setenv("WEFT_TEST_CARRIER", "local", 0); }
  void TearDown() override {
    if (!named_) unsetenv("WEFT_TEST_CARRIER");
  }

  static void expect_success(End& end, std::uint64_t wr_id) {
    const ibv_wc completion = end.await();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS) << wr_id;
    EXPECT_EQ(completion.wr_id, wr_id);
  }
  // One message from the first end to the second. The connection has left TCP then.
  static void exchange_one(Pair& pair, Buffer& source, Buffer& target) {
    constexpr std::uint32_t bytes = 64;
    ASSERT_EQ(pair.b.post_receive(7, {target.sge(0, bytes)}), 0);
    ASSERT_EQ(pair.a.send(7, {source.sge(0, bytes)}), 0);
    expect_success(pair.b, 7);
    expect_success(pair.a, 7);
  }

 private:
  const bool named_ = std::getenv("WEFT_TEST_CARRIER") != nullptr;
};

}  // namespace weft::device
