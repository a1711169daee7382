#include "wire/mpa.h"

#include <gtest/gtest.h>

#include "wire/hex_bytes.h"

namespace weft::wire {
namespace {

// Linux 6.1 siw and rping: the active side's request, and the same with siw's CRC switched on.
constexpr auto siw_request = "4d504120494420526571204672616d65 10 02 0004 00010001"_hex;
constexpr auto siw_crc_request = "4d504120494420526571204672616d65 50 02 0004 00010001"_hex;
// Linux 6.1 siw: the reply to another program, with sixteen bytes of its private data.
constexpr auto siw_reply =
    "4d504120494420526570204672616d65 10 02 0014 00040000"
    "5586ebc780001f8ff20000011000 0000"_hex;
// Linux 6.1 siw, NFS server over RDMA: IRD 0, ORD 128 and the private data of RPC-over-RDMA.
constexpr auto siw_nfs_reply =
    "4d504120494420526570204672616d65 10 02 000c 00000080 f6ab0e1801000303"_hex;

constexpr auto plain_request = "4d504120494420526571204672616d65 00 01 0000"_hex;

auto parse_frame(Bytes bytes) {
  return MpaFrame::parse(bytes);
}

// A copy of `plain_request` with another byte at `at`.
std::vector<std::byte> request_with(std::size_t at, unsigned value) {
  auto bytes = copy_of(plain_request);
  bytes[at] = static_cast<std::byte>(value);
  return bytes;
}

// RFC 5044 §7.1, RFC 6581 §5
TEST(MpaFrame, DeconstructsARequestOfSiw) {
  const auto frame = MpaFrame::parse(siw_request);
  ASSERT_TRUE(frame);
  EXPECT_EQ(
      *frame,
      (MpaFrame{
          .kind = MpaKind::request, .enhanced = true, .revision = 2, .private_data_bytes = 4}));
}

TEST(MpaFrame, ConstructsTheRequestAndReplyOfSiw) {
  const MpaFrame request{.crc = true, .enhanced = true, .revision = 2, .private_data_bytes = 4};
  EXPECT_EQ(emitted(request), copy_of(Bytes(siw_crc_request).first(20)));
  const MpaFrame reply{
      .kind = MpaKind::reply, .enhanced = true, .revision = 2, .private_data_bytes = 20};
  EXPECT_EQ(emitted(reply), copy_of(Bytes(siw_reply).first(20)));
}

TEST(MpaFrame, IsTruncatedBelowTwentyBytes) {
  expect_truncated_below(MpaFrame::header_bytes, siw_request, parse_frame);
}

// RFC 5044 §7.1: M, C and R, each for itself.
TEST(MpaFrame, KeepsEachFlagApart) {
  auto frame = *MpaFrame::parse(request_with(16, 0x80));
  EXPECT_TRUE(frame.markers && !frame.crc && !frame.reject && !frame.enhanced);
  frame = *MpaFrame::parse(request_with(16, 0x40));
  EXPECT_TRUE(!frame.markers && frame.crc && !frame.reject && !frame.enhanced);
  const auto reject = "4d504120494420526570204672616d65 20 01 0000"_hex;
  frame = *MpaFrame::parse(reject);
  EXPECT_TRUE(!frame.markers && !frame.crc && frame.reject && !frame.enhanced);
  EXPECT_EQ(emitted(frame), copy_of(reject));
}

// RFC 5044 §7.1: R is for replies; the receiver of a request does not look at it.
TEST(MpaFrame, IgnoresRejectInARequest) {
  EXPECT_FALSE(MpaFrame::parse(request_with(16, 0x20))->reject);
  const MpaFrame request{.reject = true};
  EXPECT_EQ(emitted(request), copy_of(plain_request));
}

// RFC 5044 §7.1: reserved bits are not checked; siw sets 0x08.
TEST(MpaFrame, IgnoresReservedFlags) {
  EXPECT_EQ(*MpaFrame::parse(request_with(16, 0x0C)), *MpaFrame::parse(plain_request));
}

TEST(MpaFrame, HasTheMarkInTheLastReservedFlags) {
  for (const auto mark : {MpaMark::none, MpaMark::request, MpaMark::reply, MpaMark::both}) {
    const auto bytes = request_with(16, static_cast<std::uint8_t>(mark));
    const MpaFrame frame = *MpaFrame::parse(bytes);
    EXPECT_EQ(frame.mark, mark);
    EXPECT_EQ(emitted(frame), copy_of(bytes));
  }
}

TEST(MpaFrame, OffersWordsOnlyBesideAMark) {
  const auto bytes = request_with(16, 0x05);
  const MpaFrame frame = *MpaFrame::parse(bytes);
  EXPECT_EQ(frame.mark, MpaMark::request);
  EXPECT_TRUE(frame.words);
  EXPECT_EQ(emitted(frame), copy_of(bytes));
  EXPECT_FALSE(MpaFrame::parse(request_with(16, 0x04))->words);
}

TEST(MpaFrame, IsOfAnExtendedConnectionOnlyBesideAMark) {
  const auto bytes = request_with(16, 0x09);
  const MpaFrame frame = *MpaFrame::parse(bytes);
  EXPECT_TRUE(frame.extended);
  EXPECT_EQ(emitted(frame), copy_of(bytes));
  EXPECT_FALSE(MpaFrame::parse(request_with(16, 0x08))->extended);
}

// RFC 6581 §5: S has a meaning from revision 2 on.
TEST(MpaFrame, IgnoresTheEnhancedFlagInRevisionOne) {
  EXPECT_FALSE(MpaFrame::parse(request_with(16, 0x10))->enhanced);
  const MpaFrame request{.enhanced = true, .revision = 1};
  EXPECT_EQ(emitted(request), copy_of(plain_request));
}

TEST(MpaFrame, RefusesAForeignKey) {
  for (std::size_t at = 0; at < 16; ++at) {
    const auto frame = MpaFrame::parse(request_with(at, 0x00));
    ASSERT_FALSE(frame);
    EXPECT_EQ(frame.error(), WireError::bad_key);
  }
}

TEST(MpaFrame, RefusesEveryRevisionButOneAndTwo) {
  for (unsigned revision = 0; revision < 256; ++revision) {
    const auto frame = MpaFrame::parse(request_with(17, revision));
    if (revision == 1 || revision == 2) {
      EXPECT_EQ(frame->revision, revision);
    } else {
      ASSERT_FALSE(frame);
      EXPECT_EQ(frame.error(), WireError::bad_revision);
    }
  }
}

// RFC 5044 §7.1: at most 512 bytes of private data.
TEST(MpaFrame, RefusesTooMuchPrivateData) {
  const auto most = "4d504120494420526571204672616d65 00 01 0200"_hex;
  EXPECT_EQ(MpaFrame::parse(most)->private_data_bytes, MpaFrame::max_private_data_bytes);
  const auto more = "4d504120494420526571204672616d65 00 01 0201"_hex;
  ASSERT_FALSE(MpaFrame::parse(more));
  EXPECT_EQ(MpaFrame::parse(more).error(), WireError::bad_length);
}

// RFC 6581 §5: with S, the first four bytes of private data are the enhanced data.
TEST(MpaFrame, RefusesEnhancedDataThatDoesNotFitThePrivateData) {
  const auto short_by_one = "4d504120494420526571204672616d65 10 02 0003"_hex;
  ASSERT_FALSE(MpaFrame::parse(short_by_one));
  EXPECT_EQ(MpaFrame::parse(short_by_one).error(), WireError::bad_length);
}

// RFC 6581 §5.1
TEST(MpaEnhanced, KeepsEachBitApart) {
  const auto parsed = [](Bytes bytes) { return *MpaEnhanced::parse(bytes); };
  EXPECT_EQ(parsed("80000000"_hex), MpaEnhanced{.peer_to_peer = true});
  EXPECT_EQ(parsed("40000000"_hex), MpaEnhanced{.rtr_send = true});
  EXPECT_EQ(parsed("00008000"_hex), MpaEnhanced{.rtr_write = true});
  EXPECT_EQ(parsed("00004000"_hex), MpaEnhanced{.rtr_read = true});
  EXPECT_EQ(parsed("3fff0001"_hex), (MpaEnhanced{.ird = MpaEnhanced::no_negotiation, .ord = 1}));
}

TEST(MpaEnhanced, ConstructsWhatItDeconstructs) {
  const MpaEnhanced value{.peer_to_peer = true, .rtr_read = true, .ird = 16, .ord = 0x1234};
  EXPECT_EQ(emitted(value), copy_of("8010 5234"_hex));
  EXPECT_EQ(*MpaEnhanced::parse("8010 5234"_hex), value);
}

TEST(MpaEnhanced, NeverLetsADepthSpillIntoTheFlags) {
  EXPECT_EQ(emitted(MpaEnhanced{.ird = 0xFFFF, .ord = 0xFFFF}), copy_of("3fff 3fff"_hex));
}

TEST(MpaEnhanced, IsTruncatedBelowFourBytes) {
  expect_truncated_below(MpaEnhanced::header_bytes, "80105234"_hex,
                         [](Bytes bytes) { return MpaEnhanced::parse(bytes); });
}

TEST(MpaFrameView, SplitsPrivateDataIntoEnhancedDataAndTheUsersPart) {
  const auto view = MpaFrameView::check(siw_nfs_reply);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->size(), siw_nfs_reply.size());
  EXPECT_EQ(view->enhanced(), (MpaEnhanced{.ird = 0, .ord = 128}));
  EXPECT_EQ(copy_of(view->user_data()), copy_of("f6ab0e1801000303"_hex));
}

TEST(MpaFrameView, IsTruncatedUntilThePrivateDataIsThere) {
  expect_truncated_below(siw_reply.size(), siw_reply,
                         [](Bytes bytes) { return MpaFrameView::check(bytes); });
}

TEST(MpaFrameView, LeavesWhatFollowsTheFrameAlone) {
  const auto stream = joined(plain_request, "0012414300"_hex);
  const auto view = MpaFrameView::check(stream);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->size(), MpaFrame::header_bytes);
  EXPECT_EQ(view->enhanced(), std::nullopt);
  EXPECT_TRUE(view->user_data().empty());
}

}  // namespace
}  // namespace weft::wire
