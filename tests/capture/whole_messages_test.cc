// RPCs of every shape, as captures of both transports that are damaged in every way: what comes out
// is what was sent, or said to be incomplete, with the ranges that are missing. Never silently
// wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "capture/iwarp_messages.h"
#include "capture/made_roce.h"
#include "capture/made_rpcs.h"
#include "capture/meant_rpcs.h"
#include "support/random.h"

namespace weft::capture::test {
namespace {

using weft::test::Random;

struct Made {
  MadeCapture capture;
  MeantByXid meant;
};

struct Way {
  const char* name;
  Made (*make)(std::size_t chunks, std::size_t length, std::uint32_t first);
};

Made iwarp(std::size_t chunks, std::size_t length, std::uint32_t first, const MpaOptions& mpa) {
  Made made;
  IwarpTalk talk(made.capture, {.first_a = first, .first_b = first + 77, .mss_bytes = 300}, mpa);
  talk.connect();
  IwarpMessages messages(talk, 250);
  Rpcs rpcs(chunks, length);
  rpcs.run(messages);
  talk.close();
  made.meant = std::move(rpcs.meant);
  return made;
}

Made roce(std::size_t chunks, std::size_t length, std::uint32_t first) {
  Made made;
  RoceTalk talk(made.capture, {.psn_a = first & 0xFFFFFF, .psn_b = (first + 77) & 0xFFFFFF});
  talk.connect();
  Rpcs rpcs(chunks, length);
  rpcs.run(talk);
  talk.disconnect();
  made.meant = std::move(rpcs.meant);
  return made;
}

const Way ways[] = {
    {"Iwarp", [](auto... arguments) { return iwarp(arguments..., {}); }},
    {"IwarpMarkersAnywhere",
     [](auto... arguments) {
       return iwarp(arguments..., {.markers_a = true, .markers_b = true, .aligned = false});
     }},
    {"IwarpWithoutCrc",
     [](auto... arguments) { return iwarp(arguments..., {.crc = false, .aligned = false}); }},
    {"Roce", roce},
};

struct WholeMessages : testing::TestWithParam<Way> {
  static Made make(std::size_t chunks, std::size_t length, std::uint32_t first = 1'000) {
    return GetParam().make(chunks, length, first);
  }
};

INSTANTIATE_TEST_SUITE_P(, WholeMessages, testing::ValuesIn(ways),
                         [](const auto& test_case) { return test_case.param.name; });

TEST_P(WholeMessages, OfEveryLengthAndNumberOfChunks) {
  for (std::size_t chunks = 1; chunks <= 3; ++chunks) {
    for (const std::size_t length : {1, 2, 3, 4, 5, 6, 7, 8, 9, 1'001, 1'002, 1'003, 1'004}) {
      SCOPED_TRACE(testing::Message() << chunks << " chunks of " << length);
      const Made made = make(chunks, length);
      const RpcLog log = followed(made.capture);
      EXPECT_EQ(whole_ones(log, made.meant), 5U);
      EXPECT_TRUE(log.findings.empty()) << log.all();
    }
  }
}

TEST_P(WholeMessages, WithNumbersThatWrapAnywhere) {
  const bool is_roce = GetParam().name == std::string("Roce");
  const std::uint32_t step = is_roce ? 1 : 61;
  const std::uint32_t most = is_roce ? 40 : 9'000;
  for (std::uint32_t back = 1; back < most; back += step) {
    const Made made = make(3, 601, 0U - back);
    EXPECT_EQ(whole_ones(followed(made.capture), made.meant), 5U) << back;
  }
}

TEST_P(WholeMessages, WithEachPacketLost) {
  for (std::size_t chunks = 1; chunks <= 3; ++chunks) {
    const Made made = make(chunks, 601);
    std::size_t whole = 0;
    for (std::size_t lost = 0; lost < made.capture.size(); ++lost) {
      SCOPED_TRACE(testing::Message() << chunks << " chunks, without packet " << lost);
      MadeCapture less = made.capture;
      less.erase(less.begin() + static_cast<std::ptrdiff_t>(lost));
      whole += whole_ones(followed(less), made.meant);
    }
    EXPECT_GE(whole, 3 * made.capture.size()) << "each costs two of five at most, on average";
  }
}

TEST_P(WholeMessages, WithEachPacketTwice) {
  const Made made = make(3, 601);
  for (std::size_t twice = 0; twice < made.capture.size(); ++twice) {
    MadeCapture more = made.capture;
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(twice), made.capture[twice]);
    const RpcLog log = followed(more);
    EXPECT_EQ(whole_ones(log, made.meant), 5U) << twice;
    EXPECT_TRUE(log.findings.empty()) << twice << ' ' << log.all();
  }
}

// Each packet moves by less than `window` places.
MadeCapture shuffled(const MadeCapture& capture, std::size_t window, Random& random) {
  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (std::size_t i = 0; i < capture.size(); ++i) order.emplace_back(i + random.below(window), i);
  std::ranges::stable_sort(order, {}, [](const auto& place) { return place.first; });
  MadeCapture out;
  for (const auto& [place, index] : order) out.push_back(capture[index]);
  return out;
}

// The last byte of the IPv4 address.
std::byte sender_of(const MadePacket& packet) {
  return packet.bytes[14 + 12 + 3];
}

// As above, but nothing passes what the other side has sent: neither an answer its request, nor a
// request what its sender had waited for.
MadeCapture shuffled_apart(const MadeCapture& capture, std::size_t window, Random& random) {
  MadeCapture out;
  for (auto at = capture.begin(); at != capture.end();) {
    const auto end = std::find_if(
        at, capture.end(), [&](const auto& next) { return sender_of(next) != sender_of(*at); });
    const MadeCapture run = shuffled({at, end}, window, random);
    out.insert(out.end(), run.begin(), run.end());
    at = end;
  }
  return out;
}

TEST_P(WholeMessages, ShuffledWithinAWindow) {
  const Made made = make(3, 601);
  for (const std::uint64_t seed : weft::test::seeds(60)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    Random random(seed);
    const std::size_t window = 2 + seed % 7;
    const RpcLog log = followed(shuffled_apart(made.capture, window, random));
    EXPECT_EQ(whole_ones(log, made.meant), 5U);
    EXPECT_TRUE(log.findings.empty()) << log.all();
    (void)whole_ones(followed(shuffled(made.capture, window, random)), made.meant);
  }
}

TEST_P(WholeMessages, WithPacketsLostAndDoubledAndShuffled) {
  for (const std::uint64_t seed : weft::test::seeds(150)) {
    SCOPED_TRACE(weft::test::seed_trace(seed));
    Random random(seed);
    const Made made = make(1 + seed % 3, 500 + seed % 211);
    MadeCapture damaged;
    for (const MadePacket& packet : made.capture) {
      if (random.chance(12)) continue;
      damaged.push_back(packet);
      if (random.chance(12)) damaged.push_back(packet);
      if (random.chance(40)) damaged.back().bytes.resize(random.below(packet.bytes.size()));
    }
    const std::size_t window = 1 + random.below(8);
    (void)whole_ones(followed(shuffled(damaged, window, random)), made.meant);
  }
}

}  // namespace
}  // namespace weft::capture::test
