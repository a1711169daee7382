// Connecting, rejecting, private data, and options.
#include <poll.h>

#include <array>
#include <future>

#include "stream/greeting_wire.h"
#include "stream/sides.h"
#include "support/host.h"

namespace weft::stream {
namespace {

std::uint16_t closed_port() {
  const Listener gone({test::host(), 0});
  return gone.port();
}

// The error number of connecting to the listener.
int error_of_connecting(const Listener& listener, const Options& options = {}) {
  try {
    Stream stream(options);
    stream.connect({test::host(), listener.port()}, test_timeout);
  } catch (const Error& error) {
    return error.error_number();
  }
  return 0;
}

TEST(Connecting, PrivateDataGoesBothWays) {
  Listener listener({test::host(), 0});
  listener.listen();
  Stream active;
  const std::string longest(max_private_data_bytes(), 'p');
  active.start_connecting({test::host(), listener.port()}, bytes_of(longest));
  auto request = listener.next(test_timeout);
  ASSERT_TRUE(request);
  EXPECT_EQ(text_of(request->private_data()), longest);
  EXPECT_EQ(request->peer_address().substr(0, test::host().size() + 1), test::host() + ":");
  auto passive = std::move(*request).accept(bytes_of("welcome"));
  ASSERT_TRUE(active.await_connected(test_timeout));
  EXPECT_EQ(text_of(active.peer_private_data()), "welcome");
  EXPECT_EQ(text_of(passive.peer_private_data()), longest);
  EXPECT_EQ(active.peer_address(), test::host() + ":" + std::to_string(listener.port()));
  EXPECT_EQ(active.local_address(), passive.peer_address());
}

// As with TCP: many programs take a first send that would block for an error.
TEST(Connecting, AProgramThatHasReceivedCanSendAtOnce) {
  Listener listener({test::host(), 0});
  listener.listen();
  for (int i = 0; i < 100; ++i) {
    Stream active;
    active.start_connecting({test::host(), listener.port()});
    auto request = listener.next(test_timeout);
    ASSERT_TRUE(request);
    auto passive = std::move(*request).accept();
    ASSERT_TRUE(active.await_connected(test_timeout));
    ASSERT_TRUE(active.send(bytes_of("x")).ok());
    std::array<std::byte, 1> byte{};
    Transfer got;
    do {
      got = passive.receive(byte, Deadline::now());
    } while (got.would_block());
    ASSERT_TRUE(got.ok());
    ASSERT_TRUE(passive.send(bytes_of("y"), Deadline::now()).ok()) << "connection " << i;
  }
}

TEST(Connecting, TooMuchPrivateDataIsRefusedWithTheLimit) {
  const std::vector<std::byte> much(max_private_data_bytes() + 1);
  Stream stream;
  try {
    stream.start_connecting({test::host(), 1}, much);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
    EXPECT_NE(std::string(error.what()).find(std::to_string(much.size() - 1)), std::string::npos);
  }
  EXPECT_EQ(stream.state(), State::idle);
}

TEST(Connecting, ARejectionBringsItsPrivateData) {
  Listener listener({test::host(), 0});
  listener.listen();
  Stream active;
  active.start_connecting({test::host(), listener.port()});
  auto request = listener.next(test_timeout);
  ASSERT_TRUE(request);
  std::move(*request).reject(bytes_of("not today"));
  try {
    (void)active.await_connected(test_timeout);
    FAIL() << "connected";
  } catch (const Rejected& refused) {
    EXPECT_EQ(refused.error_number(), ECONNREFUSED);
    EXPECT_EQ(text_of(refused.private_data()), "not today");
  }
  EXPECT_EQ(active.state(), State::failed);
  EXPECT_EQ(active.send(bytes_of("x")).error_number, ECONNREFUSED);
}

TEST(Connecting, ARequestThatIsDroppedIsRejected) {
  Listener listener({test::host(), 0});
  listener.listen();
  Stream active;
  active.start_connecting({test::host(), listener.port()});
  EXPECT_TRUE(listener.next(test_timeout));
  EXPECT_THROW((void)active.await_connected(test_timeout), Rejected);
}

// The next one is served.
TEST(Connecting, APeerThatIsGoneBeforeItIsAcceptedEndsNoServer) {
  Listener listener({test::host(), 0});
  listener.listen();
  {
    Stream gone;
    gone.start_connecting({test::host(), listener.port()});
    pollfd entry{listener.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
    gone.abort();
  }
  Stream next;
  next.start_connecting({test::host(), listener.port()});
  Stream served = listener.accept(test_timeout);
  EXPECT_TRUE(next.await_connected(test_timeout));
  EXPECT_TRUE(served.close(test_timeout));
}

TEST(Connecting, APortWithoutAListenerIsAnError) {
  Stream stream;
  try {
    stream.connect({test::host(), closed_port()}, test_timeout);
    FAIL() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), ECONNREFUSED);
  }
}

// As with connect(2), another attempt may follow a call that has failed at once.
TEST(Connecting, AnAttemptThatCouldNotBeginCanBeRepeated) {
  Listener listener({test::host(), 0});
  listener.listen();
  Stream active;
  EXPECT_THROW(active.start_connecting({"fe80::1%no-such-zone", 1}), Error);
  EXPECT_EQ(active.state(), State::idle);
  active.start_connecting({test::host(), listener.port()});
  Stream passive = listener.accept(test_timeout);
  EXPECT_TRUE(active.await_connected(test_timeout));
  EXPECT_TRUE(passive.close(test_timeout));
}

TEST(Connecting, AnAttemptEndsAtItsDeadline) {
  Listener listener({test::host(), 0});
  listener.listen();  // requests are never taken
  Stream stream;
  try {
    stream.connect({test::host(), listener.port()}, 1ms);
    FAIL() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), ETIMEDOUT);
  }
  EXPECT_EQ(stream.state(), State::failed);
}

TEST(Connecting, ALocalAddressCanBeChosen) {
  if (!test::own_device()) GTEST_SKIP() << "the device need not have a second address";
  Listener listener({test::host(), 0});
  listener.listen();
  Stream active;
  active.bind({"127.0.0.2", 0});
  active.start_connecting({test::host(), listener.port()});
  auto passive = listener.accept(test_timeout);
  ASSERT_TRUE(active.await_connected(test_timeout));
  EXPECT_EQ(passive.peer_address().substr(0, 10), "127.0.0.2:");
}

TEST(Connecting, WithoutACommonVariantTheReasonIsReported) {
  WEFT_NEEDS_IMMEDIATES(test::open_device());
  Options immediate;
  immediate.variant = Variant::immediate;
  Options plain;
  plain.variant = Variant::write_and_send;
  Listener listener({test::host(), 0}, immediate);
  listener.listen();
  auto serving =
      std::async(std::launch::async, [&] { return listener.next(test_timeout).has_value(); });
  EXPECT_EQ(error_of_connecting(listener, plain), EPROTONOSUPPORT);
  EXPECT_EQ(listener.refused(), 1U);
  EXPECT_EQ(error_of_connecting(listener, immediate), ECONNREFUSED);  // taken, and destroyed
  EXPECT_TRUE(serving.get());
}

TEST(Connecting, AutomaticMeansImmediatesHere) {
  WEFT_NEEDS_IMMEDIATES(test::open_device());
  Sides sides;
  EXPECT_EQ(sides.active.variant(), Variant::immediate);
  Options plain;
  plain.variant = Variant::write_and_send;
  Sides mixed({}, plain);
  EXPECT_EQ(mixed.active.variant(), Variant::write_and_send);
  EXPECT_EQ(mixed.passive->variant(), Variant::write_and_send);
}

// --- Other versions ------------------------------------------------------------------------------

// Requests a connection with this private data. Returns type and private data of the answer.
std::pair<rdma_cm_event_type, std::vector<std::byte>> ask(std::uint16_t port,
                                                          std::span<const std::byte> private_data) {
  const verbs::EventChannel events;
  const verbs::Id id(events);
  id.resolve_address({test::host(), port}, 10s);
  EXPECT_EQ(events.next(test_timeout)->type(), RDMA_CM_EVENT_ADDR_RESOLVED);
  id.resolve_route(10s);
  EXPECT_EQ(events.next(test_timeout)->type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  const auto context = id.context();
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  ibv_qp_cap capacity{};
  capacity.max_send_wr = capacity.max_recv_wr = capacity.max_send_sge = capacity.max_recv_sge = 1;
  const auto queue_pair = id.create_queue_pair(domain, queue, queue, capacity);
  id.connect({.private_data = private_data});
  const auto answer = events.next(test_timeout);
  const auto data = answer->private_data();
  return {answer->type(), {data.begin(), data.end()}};
}

TEST(Connecting, OtherVersionsAreRefusedWithTheReason) {
  detail::StreamGreeting good;
  good.receives = 10;
  good.ring_address = 4096;
  good.ring_rkey = 7;
  good.ring_bytes = 100;
  good.variants = 3;
  const auto changed = [&](std::size_t at, std::uint8_t value) {
    auto bytes = good.to_bytes();
    bytes[at] = std::byte{value};
    return bytes;
  };
  std::vector<std::byte> rsockets(40);
  rsockets[0] = std::byte{1};
  std::vector<std::byte> rstream(24);
  rstream[22] = std::byte{2};
  using detail::Reason;
  const std::vector<std::pair<std::vector<std::byte>, Reason>> cases{
      {{}, Reason::version},
      {rsockets, Reason::version},
      {rstream, Reason::version},
      {changed(4, 2), Reason::version},
      {changed(5, 2), Reason::malformed},     // an acceptance
      {changed(24, 4), Reason::malformed},    // no known variant
      {changed(7, 1), Reason::malformed},     // one receive only
      {changed(20, 255), Reason::malformed},  // a ring above the limit
      {changed(27, 200), Reason::malformed},  // private data beyond the end
  };
  Listener listener({test::host(), 0});
  listener.listen();
  auto serving = std::async(std::launch::async, [&] { return listener.next(test_timeout); });
  for (const auto& [private_data, reason] : cases) {
    const auto [type, answer] = ask(listener.port(), private_data);
    EXPECT_EQ(type, RDMA_CM_EVENT_REJECTED);
    const auto parsed = detail::StreamGreeting::parse(answer);
    ASSERT_TRUE(std::holds_alternative<detail::StreamGreeting>(parsed));
    EXPECT_EQ(std::get<detail::StreamGreeting>(parsed).type, detail::GreetingType::refusal);
    EXPECT_EQ(std::get<detail::StreamGreeting>(parsed).reason(), reason);
  }
  EXPECT_EQ(listener.refused(), cases.size());
  Stream welcome;
  welcome.start_connecting({test::host(), listener.port()});
  EXPECT_TRUE(serving.get());
}

TEST(Connecting, AnAcceptanceThatIsNoneIsAnError) {
  const verbs::EventChannel events;
  const verbs::Id door(events);
  door.bind({test::host(), 0});
  door.listen();
  Stream stream;
  stream.start_connecting({test::host(), door.local_port()});
  auto event = events.next(test_timeout);
  ASSERT_EQ(event->type(), RDMA_CM_EVENT_CONNECT_REQUEST);
  const verbs::Id id = event->take_request();
  event.reset();
  const auto context = id.context();
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(8);
  ibv_qp_cap capacity{};
  capacity.max_send_wr = capacity.max_recv_wr = capacity.max_send_sge = capacity.max_recv_sge = 1;
  const auto queue_pair = id.create_queue_pair(domain, queue, queue, capacity);
  id.accept({.private_data = bytes_of("something else entirely, and long enough to read")});
  try {
    (void)stream.await_connected(test_timeout);
    FAIL() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EPROTO);
  }
}

// --- Options -------------------------------------------------------------------------------------

TEST(StreamOptions, TheDefaultsAreThoseOfTheOriginal) {
  const Options options;
  EXPECT_EQ(options.send_buffer_bytes, 32'768U);
  EXPECT_EQ(options.receive_buffer_bytes, 32'768U);
  EXPECT_EQ(options.send_queue, 384U);
  EXPECT_EQ(options.receive_queue, 384U);
}

TEST(StreamOptions, OutOfRangeIsRefusedByName) {
  const auto refused = [](auto change) {
    Options options;
    change(options);
    try {
      const Stream stream(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.error_number(), EINVAL);
      EXPECT_EQ(error.detail().object, "stream options");
      EXPECT_NE(std::string(error.what()).find(error.detail().attribute), std::string::npos);
      EXPECT_FALSE(error.detail().attribute.empty());
      return std::string(error.what());
    }
    return std::string("taken");
  };
  const auto has = [](const std::string& text, const char* name) {
    EXPECT_NE(text.find(name), std::string::npos) << text;
  };
  has(refused([](Options& o) { o.send_buffer_bytes = 0; }), "send_buffer_bytes");
  has(refused([](Options& o) { o.receive_buffer_bytes = max_buffer_bytes + 1; }),
      "receive_buffer_bytes");
  has(refused([](Options& o) { o.send_queue = 1; }), "send_queue");
  has(refused([](Options& o) { o.receive_queue = 65'536; }), "receive_queue");
  has(refused([](Options& o) { o.mapped_buffers = 256; }), "mapped_buffers");
  has(refused([](Options& o) { o.spin = -1us; }), "spin");
  has(refused([](Options& o) { o.linger = -1ms; }), "linger");
  has(refused([](Options& o) { o.answer_timeout = 0ms; }), "answer_timeout");
  has(refused([](Options& o) { o.refused_time = -1ms; }), "refused_time");
  has(refused([](Options& o) { o.keepalive = Keepalive{0ms, 1ms, 1}; }), "keepalive");
}

// The error is not that of the rejection, which fails as well.
TEST(StreamConnect, AcceptingAPeerThatHasGivenUpNamesThat) {
  Listener listener({test::host(), 0});
  listener.listen();
  std::optional<Request> request;
  {
    Stream asking;
    asking.start_connecting({test::host(), listener.port()});
    request = listener.next(test_timeout);
    ASSERT_TRUE(request);
  }
  try {
    Stream stream = std::move(*request).accept();
    EXPECT_THROW((void)stream.await_connected(test_timeout), Error);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("reject the"), std::string::npos) << error.what();
  }
}

TEST(StreamOptions, WhatTheDeviceLacksIsRefusedByName) {
  Listener listener({test::host(), 0});
  listener.listen();
  Options options;
  options.receive_queue = max_queue;
  Stream stream(options);
  try {
    stream.connect({test::host(), listener.port()}, test_timeout);
    FAIL() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
    EXPECT_NE(std::string(error.what()).find("receive_queue"), std::string::npos);
  }
  // On the passive side the peer's request is rejected with a reason.
  Options many;
  many.send_queue = max_queue;
  Listener greedy({test::host(), 0}, many);
  greedy.listen();
  Stream asking;
  asking.start_connecting({test::host(), greedy.port()});
  auto request = greedy.next(test_timeout);
  ASSERT_TRUE(request);
  EXPECT_THROW((void)std::move(*request).accept(), Error);
  EXPECT_THROW((void)asking.await_connected(test_timeout), Rejected);
}

TEST(StreamOptions, SizesAreSettledByConnecting) {
  Stream before;
  Options wanted;
  wanted.send_buffer_bytes = 5;
  before.set_options(wanted);
  EXPECT_EQ(before.options().send_buffer_bytes, 5U);
  Sides sides;
  try {
    sides.active.set_options(wanted);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EISCONN);
  }
  Options harmless = sides.active.options();
  harmless.spin = 0us;
  sides.active.set_options(harmless);
  EXPECT_EQ(sides.active.options().spin, 0us);
}

TEST(StreamOptions, NothingWorksBeforeConnecting) {
  Stream stream;
  std::vector<std::byte> some(1);
  EXPECT_EQ(stream.send(some).error_number, ENOTCONN);
  EXPECT_EQ(stream.receive(some).error_number, ENOTCONN);
  EXPECT_EQ(stream.peek_send().error_number, ENOTCONN);
  EXPECT_THROW(stream.finish(), Error);
  EXPECT_THROW((void)stream.local_address(), Error);
  EXPECT_TRUE(stream.close(Deadline::now()));
}

}  // namespace
}  // namespace weft::stream
