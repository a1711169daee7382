// MPA connection set-up: RFC 5044 §7.1, RFC 6581.
#include "iwarp/handshake.h"

#include <gtest/gtest.h>

#include <optional>

#include "support/fpdu.h"
#include "support/pair.h"
#include "support/random.h"

namespace weft::test {
namespace {

using iwarp::ActiveHandshake;
using iwarp::HandshakeFailure;
using iwarp::HandshakeOptions;
using iwarp::PassiveHandshake;
using iwarp::RtrKind;
using wire::MpaEnhanced;
using wire::MpaFrame;
using wire::MpaKind;
using wire::MpaMark;

Content frame(MpaFrame values, std::optional<MpaEnhanced> enhanced = {}, Bytes user_data = {}) {
  values.enhanced = enhanced.has_value();
  values.private_data_bytes =
      static_cast<std::uint16_t>(user_data.size() + (enhanced ? MpaEnhanced::header_bytes : 0));
  Content bytes(MpaFrame::header_bytes + (enhanced ? MpaEnhanced::header_bytes : 0));
  values.emit(bytes);
  if (enhanced) enhanced->emit(MutableBytes(bytes).subspan(MpaFrame::header_bytes));
  return joined(bytes, user_data);
}

MpaFrame request(std::uint8_t revision = 2) {
  return {.kind = MpaKind::request, .crc = true, .revision = revision};
}

MpaFrame reply(std::uint8_t revision = 2) {
  return {.kind = MpaKind::reply, .crc = true, .revision = revision};
}

// Moves what one side sends to the other, `most` bytes at a time.
void carry(iwarp::Handshake& from, iwarp::Handshake& to, std::size_t most = SIZE_MAX) {
  while (!from.output().empty() && to.wanted_bytes() > 0) {
    const auto part =
        from.output().first(std::min({most, from.output().size(), to.wanted_bytes()}));
    to.input(part);
    from.output_done(part.size());
  }
}

Content output(const iwarp::Handshake& handshake) {
  return {handshake.output().begin(), handshake.output().end()};
}

HandshakeOptions with_depth(std::uint16_t ird, std::uint16_t ord) {
  return {.ird = ird, .ord = ord, .max_ird = ird};
}

TEST(Handshake, RequestOnTheWire) {
  const ActiveHandshake active({.ird = 3, .ord = 4}, text("hello"));
  EXPECT_EQ(
      output(active),
      frame(request(),
            MpaEnhanced{
                .peer_to_peer = true, .rtr_write = true, .rtr_read = true, .ird = 3, .ord = 4},
            text("hello")));
  const ActiveHandshake old({.revision = 1, .crc = false, .markers = true}, text("hi"));
  auto plain = request(1);
  plain.crc = false;
  plain.markers = true;
  EXPECT_EQ(output(old), frame(plain, {}, text("hi")));
}

class Revisions : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] std::uint8_t revision() const { return static_cast<std::uint8_t>(GetParam()); }
};

// Private data of every length, in pieces of any size; no byte of the stream after it is read.
TEST_P(Revisions, CarryPrivateDataBothWays) {
  const std::size_t most = iwarp::Handshake::max_private_data_bytes(revision());
  EXPECT_EQ(most, revision() == 1 ? 512U : 508U);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{252}, most}) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{1000}}) {
      HandshakeOptions options{.revision = revision()};
      const auto asked = pattern(size, 1);
      const auto answered = pattern(size, 2);
      ActiveHandshake active(options, asked);
      PassiveHandshake passive({});
      carry(active, passive, piece);
      ASSERT_TRUE(passive.requested());
      EXPECT_EQ(passive.wanted_bytes(), 0U);
      EXPECT_EQ(passive.revision(), revision());
      EXPECT_EQ(passive.enhanced(), revision() == 2);
      EXPECT_EQ(Content(passive.peer_private_data().begin(), passive.peer_private_data().end()),
                asked);
      EXPECT_TRUE(passive.output().empty());
      passive.accept(1, 1, answered);
      carry(passive, active, piece);
      ASSERT_TRUE(active.accepted());
      EXPECT_FALSE(active.rejected());
      EXPECT_EQ(active.wanted_bytes(), 0U);
      EXPECT_EQ(Content(active.peer_private_data().begin(), active.peer_private_data().end()),
                answered);
    }
  }
}

TEST_P(Revisions, RejectCarriesPrivateData) {
  ActiveHandshake active({.revision = revision()}, {});
  PassiveHandshake passive({});
  carry(active, passive);
  passive.reject(text("go away"));
  EXPECT_TRUE(passive.rejected());
  carry(passive, active);
  EXPECT_TRUE(active.rejected());
  EXPECT_FALSE(active.accepted());
  EXPECT_FALSE(active.failed());
  EXPECT_EQ(Content(active.peer_private_data().begin(), active.peer_private_data().end()),
            text("go away"));
}

// RFC 5044 §7.1: CRCs are used where either side asks for them.
TEST_P(Revisions, EitherSideMayInsistOnCrc) {
  for (const bool wanted_here : {false, true}) {
    for (const bool wanted_there : {false, true}) {
      ActiveHandshake active({.revision = revision(), .crc = wanted_here}, {});
      PassiveHandshake passive({.crc = wanted_there});
      carry(active, passive);
      passive.accept(1, 1, {});
      const auto answer = MpaFrame::parse(passive.output());
      EXPECT_EQ(answer->crc, wanted_here || wanted_there);
      carry(passive, active);
      EXPECT_EQ(active.negotiated().crc, wanted_here || wanted_there);
      EXPECT_EQ(passive.negotiated().crc, wanted_here || wanted_there);
    }
  }
}

// RFC 5044 §7.1: each side asks for the markers that it will receive; the other inserts them.
TEST_P(Revisions, MarkersAreGeneratedForWhoeverAsks) {
  for (const bool wanted_here : {false, true}) {
    for (const bool wanted_there : {false, true}) {
      ActiveHandshake active({.revision = revision(), .markers = wanted_here}, {});
      PassiveHandshake passive({.markers = wanted_there});
      carry(active, passive);
      passive.accept(1, 1, {});
      carry(passive, active);
      EXPECT_EQ(active.negotiated().send_markers, wanted_there);
      EXPECT_EQ(passive.negotiated().send_markers, wanted_here);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Revisions, testing::Values(1, 2));

// --- Versions ------------------------------------------------------------------------------------

// RFC 6581 §10: a responder that knows only revision 1 closes without a reply.
TEST(Handshake, FallsBackWhenTheResponderClosesAtOnce) {
  ActiveHandshake active({}, {});
  active.input_closed();
  EXPECT_EQ(active.failure(), HandshakeFailure::retry_revision_1);

  ActiveHandshake old({.revision = 1}, {});
  old.input_closed();
  EXPECT_EQ(old.failure(), HandshakeFailure::closed);

  ActiveHandshake partial({}, {});
  partial.input(Bytes(frame(reply())).first(1));
  partial.input_closed();
  EXPECT_EQ(partial.failure(), HandshakeFailure::closed);

  PassiveHandshake passive({});
  passive.input_closed();
  EXPECT_EQ(passive.failure(), HandshakeFailure::closed);
}

// With revision 1 the initiator sends first, whatever the application does.
TEST(Handshake, RevisionOneSendsAnEmptyWriteFirst) {
  ActiveHandshake active({.revision = 1, .peer_to_peer = false}, {});
  active.input(frame(reply(1)));
  ASSERT_TRUE(active.accepted());
  EXPECT_EQ(active.negotiated().rtr, RtrKind::write);
  EXPECT_FALSE(active.negotiated().enhanced);
  EXPECT_FALSE(active.negotiated().ird_ord_negotiated);
}

TEST(Handshake, RevisionTwoWithoutEnhancedDataIsTaken) {
  PassiveHandshake passive({});
  passive.input(frame(request(2), {}, text("plain")));
  ASSERT_TRUE(passive.requested());
  EXPECT_FALSE(passive.enhanced());
  passive.accept(1, 1, text("ok"));
  EXPECT_EQ(output(passive), frame(reply(2), {}, text("ok")));
  EXPECT_EQ(passive.negotiated().rtr, RtrKind::none);
}

TEST(Handshake, AnswerMustBeOfTheKindOfTheQuestion) {
  const auto fails = [](const Content& answer, std::uint8_t asked) {
    ActiveHandshake active({.revision = asked}, {});
    active.input(answer);
    EXPECT_EQ(active.failure(), HandshakeFailure::bad_frame);
    EXPECT_FALSE(active.accepted());
  };
  fails(frame(reply(2)), 2);
  fails(frame(reply(1)), 2);
  fails(frame(reply(2), MpaEnhanced{}), 1);
  fails(frame(reply(2)), 1);
}

// --- Bad frames ----------------------------------------------------------------------------------

TEST(Handshake, BadFramesFail) {
  const auto request_fails = [](const Content& bytes, HandshakeFailure failure) {
    PassiveHandshake passive({});
    for (const auto byte : bytes) {
      if (passive.wanted_bytes() > 0) passive.input({&byte, 1});
    }
    EXPECT_EQ(passive.failure(), failure);
    EXPECT_FALSE(passive.requested());
    EXPECT_EQ(passive.wanted_bytes(), 0U);
  };
  request_fails(text("GET / HTTP/1.1\r\nHost: somewhere\r\n"), HandshakeFailure::not_mpa);
  request_fails(frame(reply()), HandshakeFailure::bad_frame);
  request_fails(frame(request(0)), HandshakeFailure::bad_frame);
  request_fails(frame(request(3)), HandshakeFailure::bad_frame);
  auto too_long = frame(request(1), {}, Content(513));
  request_fails(too_long, HandshakeFailure::bad_frame);
  auto too_short = frame(request(2), MpaEnhanced{});
  too_short[19] = std::byte{3};
  request_fails(too_short, HandshakeFailure::bad_frame);

  ActiveHandshake active({}, {});
  active.input(frame(request(2), MpaEnhanced{}));
  EXPECT_EQ(active.failure(), HandshakeFailure::bad_frame);
}

// siw sets 0x08, a reserved flag.
TEST(Handshake, ReservedFlagsAreIgnored) {
  auto bytes = frame(request(2), MpaEnhanced{});
  bytes[16] |= std::byte{0x0F};
  PassiveHandshake passive({});
  passive.input(bytes);
  EXPECT_TRUE(passive.requested());
}

TEST(Handshake, WeftPeersRecognizeEachOther) {
  for (const bool asks : {true, false}) {
    for (const bool answers : {true, false}) {
      ActiveHandshake active({.mark = asks}, {});
      PassiveHandshake passive({.mark = answers});
      carry(active, passive);
      passive.accept(1, 1, {});
      carry(passive, active);
      EXPECT_EQ(active.negotiated().weft, asks && answers);
      EXPECT_EQ(passive.negotiated().weft, asks && answers);
    }
  }
}

TEST(Handshake, WordsNeedTheOfferOfBothSides) {
  for (const bool asks : {true, false}) {
    for (const bool answers : {true, false}) {
      ActiveHandshake active({.mark = true, .words = asks}, {});
      PassiveHandshake passive({.mark = true, .words = answers});
      carry(active, passive);
      passive.accept(1, 1, {});
      carry(passive, active);
      EXPECT_TRUE(active.negotiated().weft && passive.negotiated().weft);
      EXPECT_EQ(active.negotiated().words, asks && answers);
      EXPECT_EQ(passive.negotiated().words, asks && answers);
    }
  }
}

TEST(Handshake, AnExtendedConnectionIsOneForBothSidesOrFails) {
  ActiveHandshake active({.mark = true, .extended = true}, {});
  PassiveHandshake passive({.mark = true});
  carry(active, passive);
  EXPECT_TRUE(passive.extended());
  passive.accept(1, 1, {});
  carry(passive, active);
  EXPECT_TRUE(active.accepted());
  EXPECT_TRUE(active.negotiated().extended && passive.negotiated().extended);

  ActiveHandshake plain({.mark = true}, {});
  PassiveHandshake other({.mark = true});
  carry(plain, other);
  EXPECT_FALSE(other.extended());

  // An older Weft answers with its mark, and siw with the flags of the request.
  for (const auto mark : {MpaMark::reply, MpaMark::request}) {
    ActiveHandshake refused({.mark = true, .extended = true}, {});
    auto without = reply();
    without.mark = mark;
    without.extended = mark == MpaMark::request;
    refused.input(frame(without, MpaEnhanced{.ird = 1, .ord = 1}));
    EXPECT_FALSE(refused.accepted());
    EXPECT_EQ(refused.failure(), HandshakeFailure::not_extended);
  }
  ActiveHandshake rejected({.mark = true, .extended = true}, {});
  auto rejection = reply();
  rejection.reject = true;
  rejected.input(frame(rejection, MpaEnhanced{}));
  EXPECT_TRUE(rejected.rejected());
}

// The kernel's siw makes its reply out of the request; others may set every reserved flag.
TEST(Handshake, APeerThatRepeatsTheMarkIsNotWeft) {
  for (const auto mark : {MpaMark::request, MpaMark::both}) {
    ActiveHandshake active({.mark = true, .words = true}, {});
    auto echo = reply();
    echo.mark = mark;
    echo.words = true;
    active.input(frame(echo, MpaEnhanced{.ird = 1, .ord = 1}));
    ASSERT_TRUE(active.accepted());
    EXPECT_FALSE(active.negotiated().weft || active.negotiated().words);
    PassiveHandshake passive({.mark = true, .words = true});
    auto strange = request();
    strange.mark = MpaMark::both;
    strange.words = true;
    passive.input(frame(strange, MpaEnhanced{.ird = 1, .ord = 1}));
    passive.accept(1, 1, {});
    EXPECT_FALSE(passive.negotiated().weft || passive.negotiated().words);
  }
}

TEST(Handshake, TakesNothingOfTheStreamBehindItsFrame) {
  const auto stream = joined(frame(request(2), MpaEnhanced{}, text("data")), text("FPDUs"));
  PassiveHandshake passive({});
  passive.input(stream);
  EXPECT_TRUE(passive.requested());
  EXPECT_EQ(Content(passive.peer_private_data().begin(), passive.peer_private_data().end()),
            text("data"));
}

// --- Time ----------------------------------------------------------------------------------------

TEST(Handshake, EndsAtItsDeadline) {
  PassiveHandshake passive({.deadline_ns = 1000});
  EXPECT_EQ(passive.deadline_ns(), 1000U);
  passive.on_time(999);
  EXPECT_FALSE(passive.failed());
  passive.input(Bytes(frame(request())).first(19));
  passive.on_time(1000);
  EXPECT_EQ(passive.failure(), HandshakeFailure::timed_out);
  passive.input(Bytes(frame(request())).last(1));
  EXPECT_FALSE(passive.requested());
}

// Once the frame has arrived, only the application can take time to accept.
TEST(Handshake, DeadlineIsThePeersNotTheApplications) {
  PassiveHandshake passive({.deadline_ns = 1000});
  passive.input(frame(request(2), MpaEnhanced{}));
  passive.on_time(5000);
  EXPECT_FALSE(passive.failed());
  passive.accept(1, 1, {});
  ActiveHandshake active({.deadline_ns = 1000}, {});
  active.input(frame(reply(), MpaEnhanced{}));
  active.on_time(5000);
  EXPECT_TRUE(active.accepted());
  EXPECT_FALSE(active.failed());
}

// --- Peer-to-peer mode ---------------------------------------------------------------------------

// RFC 6581 §9.1: the reply names the kinds that it accepts, the initiator chooses one of these.
TEST(PeerToPeer, AgreesOnAReadyToReceiveMessage) {
  for (int offered = 1; offered < 8; ++offered) {
    for (int accepted = 1; accepted < 8; ++accepted) {
      SCOPED_TRACE(testing::Message() << offered << " " << accepted);
      const auto kinds = [](int bits) {
        return iwarp::RtrKinds{
            .send = (bits & 1) != 0, .write = (bits & 2) != 0, .read = (bits & 4) != 0};
      };
      ActiveHandshake active({.rtr = kinds(offered)}, {});
      PassiveHandshake passive({.rtr = kinds(accepted)});
      carry(active, passive);
      passive.accept(1, 1, {});
      carry(passive, active);
      const int common = offered & accepted;
      if (common == 0) {
        EXPECT_EQ(active.failure(), HandshakeFailure::no_matching_rtr);
        continue;
      }
      ASSERT_TRUE(active.accepted());
      const RtrKind expected = (common & 2) != 0   ? RtrKind::write
                               : (common & 4) != 0 ? RtrKind::read
                                                   : RtrKind::send;
      EXPECT_EQ(active.negotiated().rtr, expected);
      // The responder must recognise it, since an empty Send may also be the application's.
      EXPECT_EQ(passive.negotiated().rtr == RtrKind::send, (common & 1) != 0);
    }
  }
}

// A responder may set kinds that were not asked for (RFC 6581 §9.1).
TEST(PeerToPeer, InitiatorPicksFromUnrequestedKinds) {
  ActiveHandshake active({.rtr = {.send = false, .write = true, .read = false}}, {});
  active.input(frame(reply(), MpaEnhanced{.peer_to_peer = true,
                                          .rtr_send = true,
                                          .rtr_write = true,
                                          .rtr_read = true,
                                          .ird = 1,
                                          .ord = 1}));
  ASSERT_TRUE(active.accepted());
  EXPECT_EQ(active.negotiated().rtr, RtrKind::write);
}

TEST(PeerToPeer, ReadNeedsAPlaceAtTheResponder) {
  ActiveHandshake active({.rtr = {.send = true, .write = false, .read = true}, .ird = 1, .ord = 1},
                         {});
  active.input(frame(
      reply(),
      MpaEnhanced{.peer_to_peer = true, .rtr_send = true, .rtr_read = true, .ird = 0, .ord = 1}));
  ASSERT_TRUE(active.accepted());
  EXPECT_EQ(active.negotiated().rtr, RtrKind::send);
}

TEST(PeerToPeer, IsLeftOutWhereEitherSideDoesNotWantIt) {
  ActiveHandshake unwilling({.peer_to_peer = false}, {});
  PassiveHandshake passive({});
  carry(unwilling, passive);
  passive.accept(1, 1, {});
  EXPECT_EQ(passive.negotiated().rtr, RtrKind::none);
  carry(passive, unwilling);
  EXPECT_EQ(unwilling.negotiated().rtr, RtrKind::none);

  ActiveHandshake alone({}, {});
  alone.input(frame(reply(), MpaEnhanced{.ird = 1, .ord = 1}));
  ASSERT_TRUE(alone.accepted());
  EXPECT_EQ(alone.negotiated().rtr, RtrKind::none);
}

// --- IRD and ORD (RFC 6581 §9) -------------------------------------------------------------------

struct Depths {
  std::uint16_t active_ird, active_ord, passive_ird, passive_ord, passive_max;
  std::uint16_t ird_in_reply, ord_in_reply, active_result_ord;
};

class DepthsTest : public testing::TestWithParam<Depths> {};

TEST_P(DepthsTest, AreFittedToEachOther) {
  const Depths& depths = GetParam();
  ActiveHandshake active(with_depth(depths.active_ird, depths.active_ord), {});
  PassiveHandshake passive({.max_ird = depths.passive_max});
  carry(active, passive);
  EXPECT_EQ(passive.requested_ird(), depths.active_ird);
  EXPECT_EQ(passive.requested_ord(), depths.active_ord);
  passive.accept(depths.passive_ird, depths.passive_ord, {});
  const auto data = MpaEnhanced::parse(passive.output().subspan(MpaFrame::header_bytes));
  EXPECT_EQ(data->ird, depths.ird_in_reply);
  EXPECT_EQ(data->ord, depths.ord_in_reply);
  EXPECT_EQ(passive.negotiated().ird, depths.ird_in_reply);
  EXPECT_EQ(passive.negotiated().ord, depths.ord_in_reply);
  carry(passive, active);
  ASSERT_TRUE(active.accepted());
  EXPECT_EQ(active.negotiated().ird, depths.active_ird);
  EXPECT_EQ(active.negotiated().ord, depths.active_result_ord);
  EXPECT_TRUE(active.negotiated().ird_ord_negotiated);
}

INSTANTIATE_TEST_SUITE_P(All, DepthsTest,
                         testing::Values(Depths{4, 4, 4, 4, 4, 4, 4, 4},   // equal
                                         Depths{4, 4, 2, 8, 2, 2, 4, 2},   // less than wanted
                                         Depths{4, 9, 2, 2, 16, 9, 2, 9},  // IRD is raised
                                         Depths{4, 9, 2, 2, 6, 6, 2, 6},   // as far as it may
                                         Depths{4, 1, 8, 2, 16, 8, 2, 1},  // more than wanted
                                         Depths{0, 0, 1, 1, 16, 1, 0, 0},  // no reads
                                         Depths{0x3FFE, 0x3FFE, 1, 1, 128, 128, 1, 128}));

// RFC 6581 §9.2: a responder that asks for more than was offered. It has accepted already, so the
// initiator reports the reason in a Terminate.
TEST(Depths, MoreThanTheInitiatorHoldsEndsItWithATerminate) {
  for (const bool crc : {true, false}) {
    ActiveHandshake active({.crc = crc, .ird = 4, .ord = 4}, {});
    active.output_done(active.output().size());
    auto answer = reply();
    answer.crc = crc;
    active.input(frame(answer, MpaEnhanced{.ird = 4, .ord = 5}));
    EXPECT_EQ(active.failure(), HandshakeFailure::insufficient_ird);
    EXPECT_FALSE(active.accepted());
    const auto sent = split(active.output(), crc);
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0], terminate(wire::terminate::mpa_insufficient_ird));
  }
}

TEST(Depths, MissingRtrEndsItWithATerminateToo) {
  ActiveHandshake active({.rtr = {.send = true, .write = false, .read = false}}, {});
  active.output_done(active.output().size());
  active.input(
      frame(reply(), MpaEnhanced{.peer_to_peer = true, .rtr_write = true, .ird = 1, .ord = 1}));
  EXPECT_EQ(active.failure(), HandshakeFailure::no_matching_rtr);
  const auto sent = split(active.output());
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0], terminate(wire::terminate::mpa_no_matching_rtr));
}

// RFC 6581 §9: 0x3FFF means that the applications negotiate by other means.
TEST(Depths, NoNegotiationLeavesThemAlone) {
  constexpr auto none = MpaEnhanced::no_negotiation;
  PassiveHandshake passive({.max_ird = 100});
  passive.input(frame(request(), MpaEnhanced{.ird = none, .ord = none}));
  passive.accept(7, 8, {});
  EXPECT_EQ(passive.negotiated().ird, 7);
  EXPECT_EQ(passive.negotiated().ord, 8);
  EXPECT_FALSE(passive.negotiated().ird_ord_negotiated);

  ActiveHandshake active(with_depth(5, 6), {});
  active.input(frame(reply(), MpaEnhanced{.ird = none, .ord = none}));
  ASSERT_TRUE(active.accepted());
  EXPECT_EQ(active.negotiated().ird, 5);
  EXPECT_EQ(active.negotiated().ord, 6);
  EXPECT_FALSE(active.negotiated().ird_ord_negotiated);

  ActiveHandshake unasked(with_depth(none, none), {});
  unasked.input(frame(reply(), MpaEnhanced{.ird = 1, .ord = 900}));
  EXPECT_TRUE(unasked.accepted());
}

// --- Into the stream -----------------------------------------------------------------------------

class FirstMessage : public testing::TestWithParam<std::tuple<int, std::size_t>> {};

// The responder may send once the ready-to-receive message has arrived. That message takes no
// receive and completes nothing, and all later message numbers fit.
TEST_P(FirstMessage, LetsTheResponderSpeak) {
  const auto [kind, piece] = GetParam();
  const iwarp::RtrKinds kinds{.send = kind == 0, .write = kind == 1, .read = kind == 2};
  PairOptions options;
  options.handshake = true;
  options.active.rtr = options.passive.rtr = kinds;
  if (kind == 3) options.active.revision = 1;
  Pair pair(options);
  pair.a_to_b.add(chunk(piece));
  pair.b_to_a.add(chunk(piece));
  Region& a_memory = pair.a.host.add(100);
  Region& b_memory = pair.b.host.add(100);
  b_memory.put(0, text("banner"));
  a_memory.put(50, text("answer"));
  pair.a.host.post_receive(1, {a_memory.slice(0, 10)});
  pair.b.host.post_receive(2, {b_memory.slice(50, 10)});
  pair.drive();
  ASSERT_TRUE(pair.a.connected());
  ASSERT_TRUE(pair.b.connected());
  EXPECT_EQ(pair.b.host.ready_calls, 1);
  EXPECT_TRUE(pair.b.host.receives.empty());

  pair.b.post({.wr_id = 9, .operation = iwarp::Operation::send}, {b_memory.slice(0, 6)});
  pair.drive();
  pair.a.post({.wr_id = 8, .operation = iwarp::Operation::send}, {a_memory.slice(50, 6)});
  pair.drive();
  EXPECT_EQ(a_memory.copy(0, 6), text("banner"));
  EXPECT_EQ(b_memory.copy(50, 6), text("answer"));
  EXPECT_EQ(pair.a.send_statuses(), std::vector{iwarp::Status::success});
  EXPECT_EQ(pair.b.send_statuses(), std::vector{iwarp::Status::success});
  EXPECT_EQ(pair.b.host.receives.at(0).wr_id, 2U);
}

INSTANTIATE_TEST_SUITE_P(All, FirstMessage,
                         testing::Combine(testing::Values(0, 1, 2, 3),
                                          testing::Values(1, 7, 100'000)));

// An application's own empty Send is swallowed only where one was agreed on, and only once.
TEST(PeerToPeer, EmptySendOfTheApplicationNeedsItsReceive) {
  PairOptions options;
  options.handshake = true;
  options.active.rtr = options.passive.rtr = {.send = true, .write = false, .read = false};
  Pair pair(options);
  pair.drive();
  pair.b.host.post_receive(2, {});
  pair.a.post({.wr_id = 8, .operation = iwarp::Operation::send});
  pair.drive();
  ASSERT_EQ(pair.b.host.receives.size(), 1U);
  EXPECT_EQ(pair.b.host.receives[0].length_bytes, 0U);
}

}  // namespace
}  // namespace weft::test
