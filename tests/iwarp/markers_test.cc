// Markers for a peer that asks for them: RFC 5044 §4.3.
#include "wire/markers.h"

#include <gtest/gtest.h>

#include "support/fpdu.h"
#include "support/memory_host.h"
#include "support/options.h"
#include "support/pump.h"
#include "support/random.h"
#include "wire/mpa.h"

namespace weft::test {
namespace {

using iwarp::Operation;

// Removes the markers, and checks each CRC, which covers them.
std::vector<Ulpdu> strip(Bytes stream) {
  std::vector<Ulpdu> all;
  std::uint64_t position = 0;
  Content plain(wire::fpdu_bytes(wire::fpdu_max_ulpdu_bytes));
  while (!stream.empty()) {
    const auto stripped = wire::strip_markers(position, stream, plain);
    if (!stripped) {
      ADD_FAILURE() << "at " << position << ": " << describe(stripped.error());
      return all;
    }
    EXPECT_TRUE(stripped->crc_good) << "at " << position;
    const auto ulpdu = load_be<std::uint16_t>(plain.data());
    all.push_back({{plain.begin() + 2, plain.begin() + 2 + ulpdu}});
    stream = stream.subspan(stripped->stream_bytes);
    position += stripped->stream_bytes;
  }
  return all;
}

class Markers : public testing::TestWithParam<std::size_t> {};

TEST_P(Markers, AreWhereThePeerExpectsThem) {
  auto options = roomy(true);
  options.send_markers = true;
  options.rtr = iwarp::RtrKind::write;
  options.mulpdu_bytes = GetParam();
  MemoryHost host;
  iwarp::Connection connection(options, host);
  Region& from = host.add(pattern(70'000));
  std::vector<Ulpdu> expected{write(iwarp::no_memory_stag, 0, {})};
  const std::size_t room = options.mulpdu_bytes - wire::DdpTagged::header_bytes;
  Content stream;
  for (const std::size_t size : {0U, 1U, 300U, 508U, 1400U, 70'000U, 3U}) {
    const iwarp::LocalSlice slices[] = {from.slice(0, size)};
    ASSERT_EQ(connection.post({.operation = Operation::write,
                               .signaled = false,
                               .slices = slices,
                               .remote_address = 0x1000,
                               .rkey = 5}),
              iwarp::Requester::Posted::ok);
    std::size_t at = 0;
    do {
      const std::size_t part = std::min(room, size - at);
      expected.push_back(write(5, 0x1000 + at, from.copy(at, part), at + part == size));
      at += part;
    } while (at < size);
    stream = joined(stream, drain(connection));
  }
  // RFC 5044 §4.3: the first marker precedes the first FPDU, with a pointer of zero.
  EXPECT_EQ(load_be<std::uint32_t>(stream.data()), 0U);
  EXPECT_EQ(strip(stream), expected);
}

INSTANTIATE_TEST_SUITE_P(Mulpdu, Markers, testing::Values(128, 512, 1430, 9000, 64'768));

// RFC 5044 §4.4: without CRCs the markers are at the same places.
TEST(Markers, DoNotDependOnCrc) {
  auto options = roomy(true);
  options.send_markers = true;
  options.crc = false;
  MemoryHost host;
  iwarp::Connection connection(options, host);
  Region& from = host.add(pattern(3000));
  const iwarp::LocalSlice slices[] = {from.slice()};
  ASSERT_EQ(connection.post({.operation = Operation::send, .slices = slices}),
            iwarp::Requester::Posted::ok);
  const auto sent = strip(drain(connection));
  ASSERT_EQ(sent.size(), 4U);
  EXPECT_EQ(sent[0], send(1, from.copy(0, 1424), {.last = false}));
  EXPECT_EQ(sent[3], empty_read(1));
}

// There is room for a Terminate, whatever waits to be sent before it.
TEST(Markers, AreInTheTerminateAsWell) {
  auto options = roomy(false);
  options.send_markers = true;
  MemoryHost host;
  iwarp::Connection connection(options, host);
  Region& from = host.add(pattern(200'000));
  const auto asked = read_request(1, {.sink_stag = 1,
                                      .size_bytes = 200'000,
                                      .source_stag = from.rkey(),
                                      .source_offset = from.address()});
  feed(connection, fpdu(asked));
  (void)connection.plan_send();
  const auto culprit = write(1, 2, Content(4));
  feed(connection, fpdu(culprit));
  const auto sent = strip(drain(connection));
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent.back(), terminate(wire::terminate::tagged_invalid_stag, culprit));
}

}  // namespace
}  // namespace weft::test
