#include <gtest/gtest.h>
#include "support/pair.h"
#include "support/random.h"
namespace weft::test {
namespace {
using iwarp::Operation; using iwarp::Status;
TEST(Smoke, All) {
  for (std::size_t size : {0u, 1u, 100u, 1424u, 1425u, 5000u, 100000u, 3000000u}) {
    SCOPED_TRACE(size);
    Pair pair;
    Region& src = pair.a.host.add(pattern(size));
    Region& dst = pair.b.host.add(size);
    Region& dst2 = pair.b.host.add(size);
    Region& back = pair.a.host.add(size);
    pair.b.host.post_receive(7, {dst2.slice()});
    pair.a.post({.wr_id = 1, .operation = Operation::write, .remote_address = dst.address(), .rkey = dst.rkey()}, {src.slice()});
    pair.a.post({.wr_id = 2, .operation = Operation::send}, {src.slice()});
    pair.a.post({.wr_id = 3, .operation = Operation::read, .remote_address = dst.address(), .rkey = dst.rkey()}, {back.slice()});
    pair.drive();
    EXPECT_EQ(pair.a.send_ids(), (std::vector<std::uint64_t>{1,2,3}));
    EXPECT_EQ(pair.a.send_statuses(), (std::vector<Status>(3, Status::success)));
    EXPECT_TRUE(dst.copy() == src.copy());
    EXPECT_TRUE(dst2.copy() == src.copy());
    EXPECT_TRUE(back.copy() == src.copy()) << size;
    ASSERT_EQ(pair.b.host.receives.size(), 1u);
    EXPECT_EQ(pair.b.host.receives[0].length_bytes, size);
    EXPECT_EQ(pair.a.connection().acknowledgement_reads(), 0u);
  }
}
}}
