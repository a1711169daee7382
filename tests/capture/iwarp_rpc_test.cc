// NFS over RPC-over-RDMA on iWARP: with and without markers and CRCs, FPDUs that begin segments and
// FPDUs anywhere in them, several Reads for one segment into the same sink; with TCP segments lost,
// doubled and shuffled.
#include <gtest/gtest.h>

#include <vector>

#include "capture/iwarp_messages.h"
#include "capture/made_capture.h"
#include "capture/made_rpcs.h"
#include "capture/nfs_exchanges.h"

namespace weft::capture::test {
namespace {

struct Form {
  MpaOptions mpa;
  std::size_t mss_bytes = 1'448;
  std::size_t part_bytes = 400;
};

const std::vector<Form> forms{
    {},
    {.mpa = {.crc = false}},
    {.mpa = {.markers_a = true, .markers_b = true}},
    {.mpa = {.aligned = false}},                    // several in a segment
    {.mpa = {.aligned = false}, .mss_bytes = 100},  // one in several
    {.mpa = {.markers_b = true, .aligned = false}, .mss_bytes = 333},
};

MadeCapture exchanges(const Form& form, TcpOptions tcp = {}) {
  tcp.mss_bytes = form.mss_bytes;
  MadeCapture capture;
  IwarpTalk talk(capture, tcp, form.mpa);
  talk.connect();
  IwarpMessages messages(talk, form.part_bytes);
  NfsExchanges().run(messages);
  talk.close();
  return capture;
}

std::size_t whole_ones(const RpcLog& log) {
  return NfsExchanges().whole_ones(log);
}

TEST(IwarpRpc, CallsAndRepliesHaveTheirChunks) {
  for (std::size_t i = 0; i < forms.size(); ++i) {
    SCOPED_TRACE(i);
    const RpcLog log = followed(exchanges(forms[i]));
    ASSERT_EQ(log.rpcs.size(), 3U);
    EXPECT_TRUE(log.findings.empty()) << log.all();
    EXPECT_EQ(whole_ones(log), 2U);
    EXPECT_EQ(log.rpcs[1].call->message, Assembled(NfsExchanges().write_call()));
    EXPECT_EQ(describe(log.rpcs[2]), "NFSv3 READ");
  }
}

TEST(IwarpRpc, OneSegmentLessIsNeverSilentlyWrong) {
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const MadeCapture capture = exchanges(forms[i]);
    std::size_t whole = 0;
    for (std::size_t drop = 0; drop < capture.size(); ++drop) {
      SCOPED_TRACE(testing::Message() << i << ' ' << drop);
      MadeCapture less = capture;
      less.erase(less.begin() + static_cast<std::ptrdiff_t>(drop));
      whole += whole_ones(followed(less));
    }
    EXPECT_GE(whole, capture.size()) << i;  // one of two, on average
  }
}

TEST(IwarpRpc, EachSegmentTwiceChangesNothing) {
  for (const Form& form : forms) {
    const MadeCapture capture = exchanges(form);
    for (std::size_t twice = 0; twice < capture.size(); ++twice) {
      MadeCapture more = capture;
      more.insert(more.begin() + static_cast<std::ptrdiff_t>(twice), capture[twice]);
      const RpcLog log = followed(more);
      EXPECT_EQ(whole_ones(log), 2U) << twice;
      EXPECT_TRUE(log.findings.empty()) << twice << ' ' << log.all();
    }
  }
}

TEST(IwarpRpc, SequenceNumbersWrapAnywhere) {
  for (std::uint32_t back = 1; back < 3'000; back += 97) {
    const RpcLog log = followed(exchanges(forms[3], {.first_a = 0U - back, .first_b = 0U - back}));
    EXPECT_EQ(whole_ones(log), 2U) << back;
  }
}

TEST(IwarpRpc, ConnectionsWithEqualKeysAndXidsStayApart) {
  const MadeCapture one = exchanges(forms[0]);
  const MadeCapture other = exchanges(forms[0], {.host_a = 3});
  const MadeCapture third = exchanges(forms[0], {.port_a = 40'001});
  MadeCapture all;
  for (std::size_t i = 0; i < one.size(); ++i) {
    all.push_back(one[i]);
    all.push_back(other[i]);
    all.push_back(third[i]);
  }
  const RpcLog log = followed(all);
  EXPECT_EQ(log.rpcs.size(), 9U);
  EXPECT_TRUE(log.findings.empty()) << log.all();
  EXPECT_EQ(whole_ones(log), 6U);
}

}  // namespace
}  // namespace weft::capture::test
