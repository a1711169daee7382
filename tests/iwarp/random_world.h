// Environments in which connections are tested: options, handshakes and links, all from one seed.
#pragma once

#include "random_work.h"
#include "support/pair.h"
#include "support/random.h"

namespace weft::test {

// The number of runs: `count`, or more with WEFT_TEST_LONG.
[[nodiscard]] std::uint64_t runs(std::uint64_t count);

[[nodiscard]] iwarp::Connection::Options random_options(Random& random, bool initiator);
[[nodiscard]] PairOptions random_pair(Random& random);
// Makes both sides Weft devices that know each other as such and hold Sends without a receive.
void make_patient(Random& random, PairOptions& options);
void random_link(Random& random, Link& link);

// Posts a little and moves the links a little, until everything is posted and idle; or until
// nothing moves any more, as when a corrupted length waits for bytes that never arrive.
void work(Random& random, Pair& pair, RandomWork& a_work, RandomWork& b_work, bool check_placed);

}  // namespace weft::test
