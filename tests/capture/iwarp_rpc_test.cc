// NFS over RPC-over-RDMA on iWARP: with and without markers and CRCs, FPDUs that begin segments and
// FPDUs anywhere in them, several Reads for one segment into the same sink; with TCP segments lost,
// doubled and shuffled.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "capture/made_capture.h"
#include "capture/nfs_exchanges.h"

namespace weft::capture::test {
namespace {

// Messages of both sides on a connection, in parts of `part_bytes`.
class IwarpMessages {
 public:
  IwarpMessages(IwarpTalk& talk, std::size_t part_bytes) : talk_(talk), part_bytes_(part_bytes) {}

  void send(Side side, Bytes message) {
    const std::uint32_t msn = ++of(side).sends;
    parts(message, [&](std::size_t at, Bytes part, bool last) {
      talk_.fpdu(side, weft::test::send(msn, part, {static_cast<std::uint32_t>(at), last}));
    });
    talk_.flush(side);
  }
  void write(Side side, std::uint32_t key, std::uint64_t address, Bytes bytes) {
    parts(bytes, [&](std::size_t at, Bytes part, bool last) {
      talk_.fpdu(side, weft::test::write(key, address + at, part, last));
    });
  }
  // By two requests, which are both under way before the first is answered.
  void read(Side side, std::uint32_t key, std::uint64_t address, Bytes bytes) {
    const std::size_t half = bytes.size() / 2;
    const std::array pieces{std::pair{std::size_t{0}, bytes.first(half)},
                            std::pair{half, bytes.subspan(half)}};
    for (const auto& [offset, piece] : pieces) {
      talk_.fpdu(side,
                 weft::test::read_request(++of(side).requests,
                                          {.sink_stag = sink,
                                           .sink_offset = sink_offset + offset,
                                           .size_bytes = static_cast<std::uint32_t>(piece.size()),
                                           .source_stag = key,
                                           .source_offset = address + offset}));
    }
    talk_.flush(side);
    for (const auto& [offset, piece] : pieces) {
      parts(piece, [&, base = sink_offset + offset](std::size_t at, Bytes part, bool last) {
        talk_.fpdu(other(side), weft::test::read_response(sink, base + at, part, last));
      });
    }
    talk_.flush(other(side));
  }

 private:
  // The same for all Reads: one after the other they place their answers there.
  static constexpr std::uint32_t sink = 0xA0B0C0D0;
  static constexpr std::uint64_t sink_offset = 0x7000;
  struct Numbers {
    std::uint32_t sends = 0;
    std::uint32_t requests = 0;
  };
  [[nodiscard]] Numbers& of(Side side) { return numbers_[side == Side::a ? 0 : 1]; }

  void parts(Bytes bytes, const auto& tell) const {
    for (std::size_t at = 0; at < bytes.size(); at += part_bytes_) {
      const std::size_t size = std::min(part_bytes_, bytes.size() - at);
      tell(at, bytes.subspan(at, size), at + size == bytes.size());
    }
  }

  IwarpTalk& talk_;
  std::size_t part_bytes_;
  std::array<Numbers, 2> numbers_;
};

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
