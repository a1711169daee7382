// The protocol without I/O: random traffic between two sessions, and violations by a peer.
#include "message/session.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>

#include "support/random.h"

namespace weft::message::detail {
namespace {

using test::Random;

OutPointer make_message(std::uint64_t bytes, std::uint64_t tag, bool confirm = false) {
  auto message = std::make_shared<OutMessage>();
  message->bytes = bytes;
  message->tag = tag;
  message->confirm = confirm;
  return message;
}

// One end: its session, its posted receives, and what it has recorded.
struct End {
  End(const Terms& ours, const Terms& peers)
      : session(ours, peers), receives(ours.credits + Credits::update_receives) {}

  Session session;
  std::uint32_t receives;
  std::deque<std::vector<std::byte>> in_flight;  // towards this end
  std::deque<std::size_t> posted;                // Sends under way: their numbers of messages
  std::vector<Kind> kinds;                       // of the frames that were posted
  std::deque<InMessage*> fetching;
  std::uint64_t next_out = 0;
  std::uint64_t next_in = 0;
  std::array<std::uint64_t, 4> status_changes{};  // by status
};

class Pair {
 public:
  Pair(const Terms& a, const Terms& b) : ends_{End(a, b), End(b, a)} {}

  End& operator[](int side) { return ends_[side]; }

  // Posts one frame, if there is one to post.
  bool post(int side) {
    End& from = ends_[side];
    auto emission = from.session.next(now_);
    if (!emission) return false;
    if (emission->frame.kind == Kind::offer) {
      emission->frame.pieces = {{0x1000, emission->messages.front()->bytes, 7}};
    }
    std::vector<std::byte> bytes(2000);
    bytes.resize(emission->frame.encode(bytes));
    from.kinds.push_back(emission->frame.kind);
    if (emission->frame.kind == Kind::message) {
      bytes.resize(bytes.size() + emission->messages.front()->bytes);
    }
    from.posted.push_back(emission->frame.kind == Kind::offer ? 0 : emission->messages.size());
    ends_[1 - side].in_flight.push_back(std::move(bytes));
    return true;
  }
  // Receives the next frame.
  void arrive(int side) {
    End& end = ends_[side];
    if (end.in_flight.empty()) return;
    ASSERT_GT(end.receives, 0U) << "the peer sends without a receive";
    --end.receives;
    const auto taken = end.session.on_frame(end.in_flight.front(), 0);
    end.in_flight.pop_front();
    ASSERT_NE(taken, Session::FrameResult::violation) << end.session.violation();
    if (taken == Session::FrameResult::released) ++end.receives;
    complete(1 - side);
  }
  // The oldest Send has completed.
  void complete(int side) {
    End& end = ends_[side];
    if (end.posted.empty()) return;
    end.session.on_sent(end.posted.front());
    end.posted.pop_front();
  }
  void hand_over(int side) {
    End& end = ends_[side];
    if (auto* fetch = end.session.next_fetch()) end.fetching.push_back(fetch);
    if (!end.fetching.empty()) {
      end.session.on_fetched(*end.fetching.front());
      end.fetching.pop_front();
    }
    if (!end.session.has_ready()) return;
    const auto message = end.session.take();
    EXPECT_EQ(message.tag, end.next_in++);
    end.session.handed_over(message);
    if (!message.last) return;
    ++end.receives;
    end.session.restore();
  }
  void take_changes(int side) {
    while (const auto change = ends_[side].session.take_change()) {
      ++ends_[side].status_changes[static_cast<std::size_t>(change->status)];
    }
  }
  // Runs until both sides are idle.
  void settle() {
    for (int idle = 0; idle < 4; ++idle) {
      for (const int side : {0, 1}) {
        while (post(side)) idle = 0;
        while (!ends_[side].in_flight.empty()) arrive(side);
        for (std::size_t i = ends_[side].session.inbox_messages(); i > 0; --i) hand_over(side);
        take_changes(side);
      }
    }
  }
  TimePoint now_{};

 private:
  std::array<End, 2> ends_;
};

constexpr Terms usual{8, 1000, 1'000'000};
constexpr Terms joining{8, 1000, 1'000'000, true};

TEST(Session, RandomTrafficArrivesInOrderAndStallsNever) {
  for (const auto seed : test::seeds(200)) {
    SCOPED_TRACE(test::seed_trace(seed));
    Random random(seed);
    const auto terms = [&] {
      return Terms{static_cast<std::uint16_t>(random.between(1, 9)),
                   static_cast<std::uint32_t>(random.below(200)), 1'000'000, random.chance(2)};
    };
    Pair pair(terms(), terms());
    std::array<std::uint64_t, 2> confirms{};
    for (int step = 0; step < 2000; ++step) {
      const int side = static_cast<int>(random.below(2));
      switch (random.below(5)) {
        case 0: {
          const bool confirm = random.chance(3);
          confirms[side] += confirm;
          pair[side].session.enqueue(
              make_message(random.below(300), pair[side].next_out++, confirm));
          break;
        }
        case 1:
          (void)pair.post(side);
          break;
        case 2:
          ASSERT_NO_FATAL_FAILURE(pair.arrive(side));
          break;
        case 3:
          pair.hand_over(side);
          break;
        default:
          pair.complete(side);
      }
    }
    pair.settle();
    for (const int side : {0, 1}) {
      EXPECT_EQ(pair[1 - side].next_in, pair[side].next_out);
      EXPECT_EQ(pair[side].status_changes[1], pair[side].next_out);
      EXPECT_EQ(pair[side].status_changes[2], confirms[side]);
      EXPECT_EQ(pair[side].status_changes[3], 0U);
    }
    pair[0].session.close();
    pair.settle();
    EXPECT_TRUE(pair[1].session.finished_by_peer());
  }
}

TEST(Session, WithoutCreditsItWaitsAndCountsTheTime) {
  Pair pair(usual, usual);
  for (std::uint64_t i = 0; i < 20; ++i) pair[0].session.enqueue(make_message(1, i));
  int posted = 0;
  while (pair.post(0)) ++posted;
  EXPECT_EQ(posted, 8);
  EXPECT_TRUE(pair[0].session.credit_wait().is_waiting());
  EXPECT_EQ(pair[0].session.waiting_messages(), 12U);
  pair.now_ += std::chrono::milliseconds(5);
  EXPECT_EQ(pair[0].session.credit_wait().total(pair.now_), std::chrono::milliseconds(5));
  // The receiver takes frames and hands no message over, so it grants no credits.
  while (!pair[1].in_flight.empty()) pair.arrive(1);
  EXPECT_FALSE(pair.post(1));
  pair.settle();
  EXPECT_EQ(pair[1].next_in, 20U);
  EXPECT_FALSE(pair[0].session.credit_wait().is_waiting());
  EXPECT_GE(pair[0].session.credit_wait().count(), 1U);
}

TEST(Session, AnOfferHoldsBackWhatIsBehindIt) {
  Pair pair(usual, usual);
  pair[0].session.enqueue(make_message(5000, 0));
  pair[0].session.enqueue(make_message(1, 1));
  while (pair.post(0)) continue;
  while (!pair[1].in_flight.empty()) pair.arrive(1);
  EXPECT_FALSE(pair[1].session.has_ready());
  InMessage* fetch = pair[1].session.next_fetch();
  ASSERT_TRUE(fetch);
  EXPECT_EQ(fetch->bytes, 5000U);
  EXPECT_FALSE(pair[1].session.next_fetch());
  pair[1].session.on_fetched(*fetch);
  EXPECT_TRUE(pair[1].session.has_ready());
  EXPECT_EQ(pair[1].session.take().tag, 0U);
  EXPECT_EQ(pair[1].session.take().tag, 1U);
}

TEST(Session, WhatIsUnderWayFailsOnceAtTheEnd) {
  Pair pair(usual, usual);
  std::vector<OutPointer> messages;
  for (std::uint64_t i = 0; i < 20; ++i) {
    messages.push_back(make_message(i % 5 == 0 ? 2000 : 10, i, i % 2 == 0));
    pair[0].session.enqueue(messages.back());
  }
  while (pair.post(0)) continue;
  while (!pair[1].in_flight.empty()) pair.arrive(1);
  pair[0].session.fail_all(ECONNRESET);
  pair.take_changes(0);
  std::array<std::uint64_t, 4> by_status{};
  for (const auto& message : messages)
    ++by_status[static_cast<std::size_t>(message->status.load())];
  // Of the eight messages that were framed, two are offers; three of the others have `confirm`.
  EXPECT_EQ(pair[0].status_changes[1], 6U);
  EXPECT_EQ(pair[0].status_changes[3], 17U);
  EXPECT_EQ(by_status[1], 3U);
  EXPECT_EQ(by_status[3], 17U);
}

// --- Joined messages

TEST(Session, AMessageThatIsAloneGoesAtOnceAndAsEver) {
  Pair pair(joining, joining);
  for (std::uint64_t i = 0; i < 3; ++i) {
    pair[0].session.enqueue(make_message(10, i));
    EXPECT_TRUE(pair.post(0));
  }
  EXPECT_EQ(pair[0].kinds, std::vector<Kind>(3, Kind::message));
}

TEST(Session, WhatWaitsGoesTogetherUpToTheEndOfTheFrame) {
  // 16 bytes for the frame, 16 for each message; the second begins at a multiple of 8.
  constexpr std::uint64_t rest = 32 + 1000 - 16 - (16 + 104) - 16;
  for (const std::uint64_t second :
       {std::uint64_t{0}, std::uint64_t{1}, rest - 1, rest, rest + 1}) {
    SCOPED_TRACE(second);
    Pair pair(joining, joining);
    pair[0].session.enqueue(make_message(97, 0));
    pair[0].session.enqueue(make_message(second, 1));
    while (pair.post(0)) continue;
    const bool fits = second <= rest;
    EXPECT_EQ(pair[0].kinds,
              fits ? std::vector<Kind>{Kind::joined} : std::vector<Kind>(2, Kind::message));
    if (fits) {
      EXPECT_EQ(pair[1].in_flight.at(0).size(), 16U + 16 + 104 + 16 + second);
    }
    pair.settle();
    EXPECT_EQ(pair[1].next_in, 2U);
    EXPECT_EQ(pair[0].status_changes[1], 2U);
  }
}

TEST(Session, ShortMessagesAreJoinedBetweenLongOnes) {
  Pair pair(joining, joining);
  std::vector<std::uint64_t> sizes{5000};
  sizes.insert(sizes.end(), 10, 20);
  sizes.insert(sizes.end(), {5000, 5000, 20, 1000, 900, 20, 20, 5000});
  std::uint64_t tag = 0;
  for (const auto bytes : sizes) pair[0].session.enqueue(make_message(bytes, tag++));
  while (pair.post(0)) continue;
  const auto o = Kind::offer;
  const auto m = Kind::message;
  const auto j = Kind::joined;
  EXPECT_EQ(pair[0].kinds, (std::vector<Kind>{o, j, o, o, m, m, j, o}));
  pair.settle();
  EXPECT_EQ(pair[1].next_in, sizes.size());
  EXPECT_EQ(pair[0].status_changes[1], sizes.size());
}

TEST(Session, NoMoreMessagesAreJoinedThanTheProtocolAllows) {
  Pair pair({8, 100'000, 1'000'000, true}, {8, 100'000, 1'000'000, true});
  for (std::uint64_t i = 0; i < 300; ++i) pair[0].session.enqueue(make_message(0, i));
  std::vector<std::size_t> each;
  while (auto emission = pair[0].session.next({})) each.push_back(emission->messages.size());
  EXPECT_EQ(each, (std::vector<std::size_t>{256, 44}));
}

TEST(Session, APeerThatDoesNotJoinGetsEachByItself) {
  Pair pair(joining, usual);
  for (std::uint64_t i = 0; i < 5; ++i) pair[0].session.enqueue(make_message(10, i));
  for (std::uint64_t i = 0; i < 5; ++i) pair[1].session.enqueue(make_message(10, i));
  for (const int side : {0, 1}) {
    while (pair.post(side)) continue;
  }
  EXPECT_EQ(pair[0].kinds, std::vector<Kind>(5, Kind::message));
  EXPECT_EQ(pair[1].kinds, std::vector<Kind>{Kind::joined});
  pair.settle();
  EXPECT_EQ(pair[0].next_in, 5U);
  EXPECT_EQ(pair[1].next_in, 5U);
}

TEST(Session, JoinedMessagesTakeOneCreditUntilTheLastIsHandedOver) {
  Pair pair({1, 1000, 1000, true}, {1, 1000, 1000, true});
  for (std::uint64_t i = 0; i < 3; ++i) pair[0].session.enqueue(make_message(10, i, i == 1));
  ASSERT_TRUE(pair.post(0));
  pair[0].session.enqueue(make_message(10, 3));
  EXPECT_FALSE(pair.post(0));
  EXPECT_TRUE(pair[0].session.credit_wait().is_waiting());
  pair.arrive(1);
  pair.hand_over(1);
  pair.hand_over(1);
  // The second message has `confirm`: its report does not wait for the third, and grants nothing.
  ASSERT_TRUE(pair.post(1));
  pair.arrive(0);
  pair.take_changes(0);
  EXPECT_EQ(pair[0].status_changes[2], 1U);
  EXPECT_FALSE(pair.post(0));
  pair.hand_over(1);
  ASSERT_TRUE(pair.post(1));
  pair.arrive(0);
  EXPECT_TRUE(pair.post(0));
}

TEST(Session, JoinedMessagesFailOneByOne) {
  Pair pair(joining, joining);
  std::vector<OutPointer> messages;
  for (std::uint64_t i = 0; i < 6; ++i) {
    messages.push_back(make_message(10, i, i % 2 == 0));
    pair[0].session.enqueue(messages.back());
    if (i == 2) {
      ASSERT_TRUE(pair.post(0));
    }
  }
  ASSERT_TRUE(pair.post(0));
  pair.arrive(1);  // and the first frame's Send has completed
  pair.hand_over(1);
  ASSERT_TRUE(pair.post(1));
  pair.arrive(0);
  pair[0].session.fail_all(ECONNRESET);
  std::vector<Status> status;
  for (const auto& message : messages) status.push_back(message->status);
  using enum Status;
  EXPECT_EQ(status, (std::vector<Status>{delivered, sent, failed, failed, failed, failed}));
  pair.take_changes(0);
  EXPECT_EQ(pair[0].status_changes, (std::array<std::uint64_t, 4>{0, 3, 1, 4}));
}

// Of a peer of another implementation, which this test plays: pair[1] gets nothing.
TEST(Session, ARequestedAnswerIsSent) {
  Pair pair(usual, usual);
  EXPECT_FALSE(pair.post(0));
  for (std::uint32_t i = 0; i < 100; ++i) {
    Frame update;
    update.kind = Kind::update;
    update.answer = true;
    update.updates = i;  // confirms the answers so far
    std::vector<std::byte> bytes(Frame::largest_bytes);
    bytes.resize(update.encode(bytes));
    EXPECT_EQ(pair[0].session.on_frame(bytes, 0), Session::FrameResult::released);
    ASSERT_TRUE(pair.post(0));
    EXPECT_EQ(pair[0].kinds.back(), Kind::update);
    pair.complete(0);
    EXPECT_FALSE(pair.post(0));
  }
}

TEST(Session, CountsGoRound) {
  Credits credits(3, 3);
  for (Count i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(credits.can_update());
    (void)credits.spend_update();
    ASSERT_TRUE(credits.earn(0, i + 1));
    ASSERT_TRUE(credits.take_update());
    EXPECT_EQ(credits.report_updates(), i + 1);
  }
}

// --- Violations by the peer ----------------------------------------------------------------------

Session::FrameResult receive(Session& session, const Frame& frame, std::size_t payload = 0) {
  std::vector<std::byte> bytes(Frame::largest_bytes);
  bytes.resize(frame.encode(bytes) + payload);
  return session.on_frame(bytes, 0);
}

Frame frame_of(Kind kind) {
  Frame frame;
  frame.kind = kind;
  return frame;
}

Frame offer_of(std::uint64_t bytes, std::vector<verbs::RemoteSlice> pieces) {
  Frame frame = frame_of(Kind::offer);
  frame.bytes = bytes;
  frame.pieces = std::move(pieces);
  return frame;
}

TEST(SessionViolation, DataWithoutCredit) {
  Session session(usual, usual);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(receive(session, frame_of(Kind::message), 10), Session::FrameResult::kept);
  }
  EXPECT_EQ(receive(session, frame_of(Kind::message)), Session::FrameResult::violation);
}

TEST(SessionViolation, TooManyUpdates) {
  Session session(usual, usual);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(receive(session, frame_of(Kind::update)), Session::FrameResult::released);
  }
  EXPECT_EQ(receive(session, frame_of(Kind::update)), Session::FrameResult::violation);
}

TEST(SessionViolation, TooManyCredits) {
  Session session(usual, usual);
  Frame frame = frame_of(Kind::update);
  frame.credits = 1;
  EXPECT_EQ(receive(session, frame), Session::FrameResult::violation);
}

TEST(SessionViolation, CountsOfWhatWasNeverSent) {
  for (Count Frame::*count : {&Frame::delivered, &Frame::fetched, &Frame::updates}) {
    for (const Count value : {Count{1}, Count{0} - 1}) {
      Session session(usual, usual);
      Frame frame = frame_of(Kind::update);
      frame.*count = value;
      EXPECT_EQ(receive(session, frame), Session::FrameResult::violation);
    }
  }
}

TEST(SessionViolation, Lengths) {
  Session session(usual, usual);
  EXPECT_EQ(receive(session, frame_of(Kind::message), 1000), Session::FrameResult::kept);
  EXPECT_EQ(receive(session, frame_of(Kind::message), 1001), Session::FrameResult::violation);
  EXPECT_EQ(receive(session, offer_of(1'000'000, {{1, 1'000'000, 1}})), Session::FrameResult::kept);
  EXPECT_EQ(receive(session, offer_of(1'000'001, {{1, 1'000'001, 1}})),
            Session::FrameResult::violation);
}

TEST(SessionViolation, PiecesThatDoNotAddUp) {
  const std::uint64_t most = ~std::uint64_t{0};
  const std::vector<Frame> wrong{
      offer_of(0, {}),
      offer_of(0, {{1, 0, 1}}),
      offer_of(10, {{1, 9, 1}}),
      offer_of(10, {{1, 11, 1}}),
      offer_of(10, {{1, 10, 1}, {1, 0, 1}}),
      offer_of(1, {{1, most, 1}, {1, 2, 1}}),
  };
  for (const Frame& frame : wrong) {
    Session session(usual, usual);
    EXPECT_EQ(receive(session, frame), Session::FrameResult::violation);
  }
}

Frame joined_of(const std::vector<std::uint64_t>& lengths) {
  Frame frame = frame_of(Kind::joined);
  for (const auto bytes : lengths) {
    EXPECT_TRUE(frame.join({1, 2, false, bytes, 0}, 1 << 20));
  }
  return frame;
}

std::vector<std::byte> bytes_of(const Frame& frame) {
  std::vector<std::byte> bytes(10'000, std::byte{0xEE});
  bytes.resize(frame.encode(bytes));
  return bytes;
}

TEST(SessionViolation, JoinedMessages) {
  const auto taken = [](const Terms& terms, Bytes bytes) {
    Session session(terms, terms);
    return session.on_frame(bytes, 0);
  };
  const auto good = bytes_of(joined_of({10, 0, 33}));
  EXPECT_EQ(taken(joining, good), Session::FrameResult::kept);
  EXPECT_EQ(taken(usual, good), Session::FrameResult::violation)
      << "this side has not set the flag";
  EXPECT_EQ(taken(joining, Bytes(good).first(16)), Session::FrameResult::violation)
      << "no messages";
  EXPECT_EQ(taken(joining, bytes_of(joined_of({1000, 1000}))), Session::FrameResult::kept);
  EXPECT_EQ(taken(joining, bytes_of(joined_of({10, 1001}))), Session::FrameResult::violation);
  EXPECT_EQ(taken(joining, bytes_of(joined_of(std::vector<std::uint64_t>(256)))),
            Session::FrameResult::kept);
  auto many = bytes_of(joined_of(std::vector<std::uint64_t>(256)));
  many.resize(many.size() + 16);
  EXPECT_EQ(taken(joining, many), Session::FrameResult::violation) << "more than 256";
  for (const std::uint32_t beyond : {11U, 1000U, 0x7FFFFFFFU, 0x8000000BU, 0xFFFFFFFFU}) {
    auto bytes = bytes_of(joined_of({10}));
    store_be(&bytes[20], beyond);
    EXPECT_EQ(taken(joining, bytes), Session::FrameResult::violation) << beyond;
  }
}

// A frame that is cut anywhere is refused, unless the cut is between two messages.
TEST(SessionViolation, JoinedMessagesThatAreCut) {
  const auto whole = bytes_of(joined_of({10, 0, 33}));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto frame = Frame::parse(Bytes(whole).first(length));
    // The first ends at 42 and is padded to 48, the second at 64.
    const std::size_t expected = length == 64 ? 2 : length >= 42 && length <= 48;
    EXPECT_EQ(frame ? frame->parts.size() : 0, expected) << length;
  }
}

TEST(SessionViolation, DataBehindClose) {
  Session session(usual, usual);
  EXPECT_EQ(receive(session, frame_of(Kind::close)), Session::FrameResult::released);
  EXPECT_TRUE(session.finished_by_peer());
  EXPECT_EQ(receive(session, frame_of(Kind::update)), Session::FrameResult::released);
  EXPECT_EQ(receive(session, frame_of(Kind::message)), Session::FrameResult::violation);
}

TEST(SessionViolation, NothingCrashesTheParsers) {
  for (const auto seed : test::seeds(2000)) {
    Random random(seed);
    std::vector<std::byte> bytes(random.below(100));
    random.fill(bytes);
    if (!bytes.empty()) bytes[0] = static_cast<std::byte>(random.below(7));
    if (bytes.size() > 43) bytes[40] = bytes[41] = bytes[42] = std::byte{0};
    if (bytes.size() > 23) bytes[20] = bytes[21] = bytes[22] = std::byte{0};
    Session session(joining, joining);
    (void)session.on_frame(bytes, 0);
    (void)MessageGreeting::parse(bytes);
    (void)Rejection::parse(bytes);
  }
}

// --- Bytes ---------------------------------------------------------------------------------------

TEST(Frames, ComeBackAsTheyWere) {
  Frame frame = offer_of(30, {{0x1122334455667788, 10, 0xAABBCCDD}, {2, 20, 3}});
  frame.confirm = true;
  frame.credits = 0x1234;
  frame.delivered = 5;
  frame.fetched = 6;
  frame.updates = 7;
  frame.type = 8;
  frame.tag = 0x99;
  std::vector<std::byte> bytes(Frame::largest_bytes);
  bytes.resize(frame.encode(bytes));
  EXPECT_EQ(bytes.size(), 84U);
  EXPECT_EQ(bytes[0], std::byte{2});
  EXPECT_EQ(bytes[1], std::byte{1});
  EXPECT_EQ(bytes[3], std::byte{0x34});
  EXPECT_EQ(bytes[44], std::byte{0x11});
  const auto back = Frame::parse(bytes);
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->confirm);
  EXPECT_FALSE(back->answer);
  EXPECT_EQ(back->credits, 0x1234);
  EXPECT_EQ(back->delivered, 5U);
  EXPECT_EQ(back->fetched, 6U);
  EXPECT_EQ(back->updates, 7U);
  EXPECT_EQ(back->type, 8U);
  EXPECT_EQ(back->tag, 0x99U);
  EXPECT_EQ(back->bytes, 30U);
  EXPECT_EQ(back->pieces, frame.pieces);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(Frame::parse(Bytes(bytes).first(length))) << length;
  }
}

TEST(Frames, JoinedOnesComeBackAsTheyWere) {
  Frame frame = frame_of(Kind::joined);
  ASSERT_TRUE(frame.join({7, 0x0102030405060708, true, 3, 0}, 100));
  ASSERT_TRUE(frame.join({8, 9, false, 0, 0}, 100));
  ASSERT_TRUE(frame.join({10, 11, false, 28, 0}, 100));
  EXPECT_FALSE(frame.join({}, 100));
  const auto bytes = bytes_of(frame);
  EXPECT_EQ(bytes.size(), 100U);
  EXPECT_EQ(bytes[0], std::byte{5});
  EXPECT_EQ(load_be<std::uint32_t>(&bytes[16]), 7U);
  EXPECT_EQ(load_be<std::uint32_t>(&bytes[20]), 0x80000003U);
  EXPECT_EQ(load_be<std::uint64_t>(&bytes[24]), 0x0102030405060708U);
  EXPECT_EQ(load_be<std::uint32_t>(&bytes[32]), 0xEEEEEE00U) << "the payload is the caller's";
  EXPECT_EQ(load_be<std::uint32_t>(&bytes[36]), 0U) << "nobody's memory travels along";
  EXPECT_EQ(load_be<std::uint32_t>(&bytes[40]), 8U);
  const auto back = Frame::parse(bytes);
  ASSERT_TRUE(back);
  ASSERT_EQ(back->parts.size(), 3U);
  EXPECT_EQ(back->parts[0].tag, 0x0102030405060708U);
  EXPECT_TRUE(back->parts[0].confirm);
  EXPECT_FALSE(back->parts[1].confirm);
  EXPECT_EQ(back->parts[1].bytes, 0U);
  EXPECT_EQ(back->parts[2].offset, 72U);
  EXPECT_EQ(back->parts[2].bytes, 28U);
}

TEST(Greetings, CarryWhetherFramesMayBeJoined) {
  auto bytes = MessageGreeting{joining, {}}.to_bytes();
  EXPECT_EQ(bytes[5], std::byte{1});
  bytes[5] = std::byte{0xFF};  // unknown flags are ignored
  EXPECT_EQ(MessageGreeting::parse(bytes).greeting->terms, joining);
  bytes[5] = std::byte{0xFE};
  EXPECT_EQ(MessageGreeting::parse(bytes).greeting->terms, usual);
}

TEST(Greetings, ComeBackAsTheyWereWithBytesBehind) {
  const MessageGreeting greeting{{300, 70'000, std::uint64_t{1} << 33},
                                 {std::byte{1}, std::byte{2}}};
  auto bytes = greeting.to_bytes();
  EXPECT_EQ(bytes.size(), 23U);
  bytes.resize(56);
  const auto read = MessageGreeting::parse(bytes);
  ASSERT_TRUE(read.greeting);
  EXPECT_EQ(read.greeting->terms, greeting.terms);
  EXPECT_EQ(read.greeting->private_data, greeting.private_data);
}

TEST(Greetings, HaveAReasonWhenMalformed) {
  auto bytes = MessageGreeting{usual, {std::byte{1}}}.to_bytes();
  EXPECT_EQ(MessageGreeting::parse({}).reason, Reason::malformed);
  EXPECT_EQ(MessageGreeting::parse(Bytes(bytes).first(20)).reason, Reason::malformed);
  EXPECT_EQ(MessageGreeting::parse(Bytes(bytes).first(21)).reason, Reason::malformed);
  EXPECT_EQ(MessageGreeting::parse(bytes).reason, Reason::none);
  bytes[4] = std::byte{2};
  EXPECT_EQ(MessageGreeting::parse(bytes).reason, Reason::version);
  bytes[0] = std::byte{0};
  EXPECT_EQ(MessageGreeting::parse(bytes).reason, Reason::malformed);
  EXPECT_EQ(MessageGreeting::parse(MessageGreeting{{0, 1, 1}, {}}.to_bytes()).reason,
            Reason::malformed);
}

TEST(Greetings, RejectionsHaveAReason) {
  Rejection rejection;
  rejection.reason = Reason::too_many;
  rejection.limit = 64;
  rejection.private_data = {std::byte{7}};
  auto bytes = rejection.to_bytes();
  bytes.resize(60);
  const auto back = Rejection::parse(bytes);
  EXPECT_EQ(back.reason, Reason::too_many);
  EXPECT_EQ(back.limit, 64U);
  EXPECT_EQ(back.private_data, rejection.private_data);
  EXPECT_EQ(Rejection::parse({}).reason, Reason::none);
}

}  // namespace
}  // namespace weft::message::detail
