// Connections end to end, both sides in one process.
#include "weft/connection.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <numeric>
#include <thread>

#include "support/device.h"
#include "support/error_of.h"
#include "support/needs.h"

namespace weft::connection {
namespace {

using namespace std::chrono_literals;
constexpr auto patience = 30s;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void fill(std::span<std::byte> bytes, int seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(static_cast<int>(i * 7) + seed);
  }
}

// A listener, and the two sides of one connection to it.
struct Sides {
  explicit Sides(const Options& options = {}, const Greeting& from_active = {},
                 const Greeting& from_passive = {})
      : listener({test::host(), 0}, options) {
    auto accepted =
        std::async(std::launch::async, [&] { return listener.accept(patience, from_passive); });
    active.emplace(connect({test::host(), listener.port()}, patience, options, from_active));
    passive.emplace(accepted.get());
  }

  Listener listener;
  std::optional<Connection> active;
  std::optional<Connection> passive;
};

// The example of libiwarp's README: the side that connects advertises 64 KiB; the other side writes
// into it from one buffer and from a list, and reads both back.
TEST(Connection, AdvertisedMemoryIsWrittenAndRead) {
  Options options;
  options.advertisements = true;
  Sides sides(options);
  const auto shared = sides.active->allocate(64 * 1024, Access::remote_read_write);
  sides.active->advertise(shared.remote(), 7);

  const auto told = sides.passive->await_advertisement(patience);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->buffer.size_bytes(), 65536U);
  EXPECT_EQ(told->tag, 7U);

  auto& passive = *sides.passive;
  const auto pattern = passive.allocate(3000);
  fill(pattern.elements(), 1);
  const std::array pieces{pattern.slice(0, 100), pattern.slice(1000, 200), pattern.slice(50, 3)};
  ASSERT_EQ(passive.post_write(pattern.slice(), told->buffer, 4096, 1), 0);
  ASSERT_EQ(passive.post_write(pieces, told->buffer, 0, 2), 0);
  const auto back = passive.allocate(3303);
  ASSERT_EQ(passive.post_read(back.slice(0, 3000), told->buffer, 4096, 3), 0);
  const std::array into{back.slice(3000, 100), back.slice(3100, 203)};
  ASSERT_EQ(passive.post_read(into, told->buffer, 0, 4), 0);

  const auto outcomes = passive.await(Queue::send, 4, patience);
  ASSERT_EQ(outcomes.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(outcomes[i].id, i + 1);
    EXPECT_TRUE(outcomes[i].ok()) << outcomes[i].status_name();
  }
  EXPECT_TRUE(std::ranges::equal(back.elements().first(3000), pattern.elements()));
  EXPECT_TRUE(
      std::ranges::equal(back.elements().subspan(3000, 100), pattern.elements().first(100)));
  EXPECT_TRUE(std::ranges::equal(shared.elements().subspan(4096, 3000), pattern.elements()));
  EXPECT_TRUE(std::ranges::equal(shared.elements().subspan(100, 200),
                                 pattern.elements().subspan(1000, 200)));
}

TEST(Connection, SendsAndReceivesBySliceAndByList) {
  Sides sides;
  auto& a = *sides.active;
  auto& b = *sides.passive;
  const auto from = a.allocate(300);
  fill(from.elements(), 3);
  const auto into = b.allocate(300);
  ASSERT_EQ(b.post_receive(into.slice(0, 100), 10), 0);
  const std::array parts{into.slice(250, 50), into.slice(100, 100)};
  ASSERT_EQ(b.post_receive(parts, 11), 0);
  ASSERT_EQ(a.post_send(from.slice(0, 100), 1), 0);
  const std::array pieces{from.slice(0, 60), from.slice(100, 60)};
  ASSERT_EQ(a.post_send(pieces, 2), 0);
  EXPECT_EQ(a.await(Queue::send, 2, patience).size(), 2U);
  const auto received = b.await(Queue::receive, 2, patience);
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0].id, 10U);
  EXPECT_EQ(received[0].size_bytes, 100U);
  EXPECT_EQ(received[1].id, 11U);
  EXPECT_EQ(received[1].size_bytes, 120U);
  EXPECT_TRUE(std::ranges::equal(into.elements().first(100), from.elements().first(100)));
  EXPECT_TRUE(std::ranges::equal(into.elements().subspan(250, 50), from.elements().first(50)));
}

TEST(Connection, ImmediatesArriveWithSendsAndWrites) {
  Sides sides;
  auto& a = *sides.active;
  auto& b = *sides.passive;
  const auto from = a.allocate(8);
  fill(from.elements(), 5);
  const auto into = b.allocate(64, Access::remote_write);
  ASSERT_EQ(b.post_receive(into.slice(0, 8), 1), 0);
  const int posted = a.post_send_with_immediate(from.slice(), 0x01020304, 3);
  if (test::is_refusal(posted)) GTEST_SKIP() << "the device has no immediate data";
  ASSERT_EQ(posted, 0);
  ASSERT_EQ(b.post_receive(std::span<const LocalSlice>(), 2), 0);
  ASSERT_EQ(a.post_write_with_immediate(from.slice(), into.remote(), 32, 0xFFFFFFFF, 4), 0);
  EXPECT_EQ(a.post_write_with_immediate(from.slice(), into.remote(), 57, 0, 5), EMSGSIZE);
  const auto sent = a.await(Queue::send, 2, patience);
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_TRUE(sent[0].ok() && sent[1].ok());
  const auto received = b.await(Queue::receive, 2, patience);
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0].immediate, 0x01020304U);
  EXPECT_EQ(received[1].immediate, 0xFFFFFFFFU);
  EXPECT_TRUE(std::ranges::equal(into.elements().subspan(32, 8), from.elements()));
}

TEST(Connection, AtomicsChangeThePeersBuffer) {
  Sides sides;
  auto& a = *sides.active;
  if (!test::has_atomics(a.domain().context())) GTEST_SKIP() << "the device has no atomics";
  const auto shared = sides.passive->allocate(64, Access::all);
  const auto word = [&](std::span<const std::byte> bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  };
  const auto before = a.allocate(8);
  const auto outcome_of = [&](int failed) {
    EXPECT_EQ(failed, 0);
    const auto outcomes = a.await(Queue::send, 1, patience);
    return outcomes.size() == 1 && outcomes[0].ok();
  };
  EXPECT_TRUE(outcome_of(a.post_fetch_and_add(before.slice(), shared.remote(), 8, 5, 1)));
  EXPECT_EQ(word(before.elements()), 0U);
  EXPECT_TRUE(outcome_of(a.post_compare_and_swap(before.slice(), shared.remote(), 8, 5, 77, 2)));
  EXPECT_EQ(word(before.elements()), 5U);
  EXPECT_TRUE(outcome_of(a.post_compare_and_swap(before.slice(), shared.remote(), 8, 5, 78, 3)));
  EXPECT_EQ(word(before.elements()), 77U);
  EXPECT_EQ(word(shared.elements().subspan(8)), 77U);
  EXPECT_EQ(a.post_fetch_and_add(before.slice(), shared.remote(), 57, 1, 4), EMSGSIZE);
  EXPECT_EQ(a.post_fetch_and_add(before.slice(0, 4), shared.remote(), 0, 1, 5), EMSGSIZE);
}

TEST(Connection, ASendInvalidatesAWindowOfThePeer) {
  Sides sides;
  auto& a = *sides.active;
  auto& b = *sides.passive;
  const auto shared = b.allocate(64, Access::remote_write | Access::bindable);
  WEFT_NEEDS(b.domain().allocate_window(IBV_MW_TYPE_2));
  auto window = b.domain().allocate_window(IBV_MW_TYPE_2);
  ASSERT_EQ(b.queue_pair().post_bind(
                window, {.region = shared, .bytes = 64, .access = Access::remote_write}, 9),
            0);
  ASSERT_EQ(b.await(Queue::send, 1, patience).size(), 1U);
  const std::uint32_t rkey = window.remote().rkey();
  const auto into = b.allocate(8);
  ASSERT_EQ(b.post_receive(into.slice(), 1), 0);
  const auto from = a.allocate(8);
  ASSERT_EQ(a.post_send_with_invalidate(from.slice(), rkey, 2), 0);
  const auto received = b.await(Queue::receive, 1, patience);
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].invalidated_rkey, rkey);
}

// A domain of the program's own context, for both sides of a connection.
TEST(Connection, ADomainOfAnotherContextIsShared) {
  if (verbs::default_backend() != verbs::Backend::embedded) {
    GTEST_SKIP() << "rdma-core allows the context of rdma_cm only";
  }
  const verbs::Context context = test::open_device();
  const auto domain = context.create_domain();
  Options options;
  options.domain = &domain;
  Sides sides(options);
  EXPECT_EQ(sides.active->domain().raw(), domain.raw());
  EXPECT_EQ(sides.active->queue_pair().raw()->context, context.raw());
  // Memory that was registered beside the connection.
  std::vector<char> from(16, 'x');
  std::vector<char> to(16);
  const auto source = domain.register_memory(from);
  const auto target = domain.register_memory(to, Access::remote_write);
  ASSERT_EQ(sides.active->post_write(source.slice(), target.remote(), 0, 1), 0);
  const auto outcomes = sides.active->await(Queue::send, 1, patience);
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0].status_name();
  EXPECT_EQ(to, from);
}

TEST(Connection, AListenerWithoutAHostTakesBothFamilies) {
  if (!test::own_device()) GTEST_SKIP() << "adapters need not have loopback addresses";
  Listener listener({"", 0});
  for (const char* host : {"127.0.0.1", "::1"}) {
    auto accepted = std::async(std::launch::async, [&] { return listener.accept(patience); });
    const Connection active = connect({host, listener.port()}, patience);
    const Connection passive = accepted.get();
    EXPECT_FALSE(passive.peer_address().empty()) << host;
  }
}

TEST(Connection, ErrorsNameTheObjectAndTheNextStep) {
  using ::testing::HasSubstr;
  const Listener listener({test::host(), 0});
  {
    const auto [text, detail] = test::error_of([&] { Listener({test::host(), listener.port()}); });
    EXPECT_THAT(text, HasSubstr(std::to_string(listener.port()) + ": another socket"));
    EXPECT_THAT(text, HasSubstr("take another port"));
    EXPECT_EQ(detail.attribute, "port");
    EXPECT_EQ(detail.requested, listener.port());
  }
  {
    const auto [text, detail] = test::error_of([&] {
      (void)connect({"no-such-host.invalid", 7}, 10s);
    });
    EXPECT_THAT(text, HasSubstr("\"no-such-host.invalid\" port 7: "));
    EXPECT_THAT(text, HasSubstr("numeric address"));
    EXPECT_EQ(text.find("Cannot assign"), std::string::npos) << text;
    EXPECT_EQ(detail.peer, "no-such-host.invalid port 7");
  }
  {
    const std::string peer = test::host() + ":1";
    const auto [text, detail] = test::error_of([&] { (void)connect({test::host(), 1}, patience); });
    EXPECT_THAT(text, HasSubstr(peer));
    EXPECT_EQ(detail.peer, peer);
  }
  // An adapter does not report its limit of inline data.
  if (verbs::default_backend() != verbs::Backend::embedded) return;
  {
    Options greedy;
    greedy.inline_bytes = 1 << 30;
    const auto [text, detail] = test::error_of([&] {
      (void)connect({test::host(), listener.port()}, 10s, greedy);
    });
    EXPECT_THAT(text, HasSubstr("inline"));
    EXPECT_EQ(detail.attribute, "max_inline_data");
    EXPECT_EQ(detail.requested, 1U << 30);
    EXPECT_GT(detail.limit.value_or(0), 0U);
  }
}

// A TCP server that sends other bytes than those of iWARP.
TEST(Connection, AServerOfPlainTcpIsNamed) {
  if (!test::own_device()) GTEST_SKIP() << "the embedded device connects by TCP";
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof at;
  ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&at), bytes), 0);
  ASSERT_EQ(listen(server, 4), 0);
  ASSERT_EQ(getsockname(server, reinterpret_cast<sockaddr*>(&at), &bytes), 0);
  std::thread talker([server] {
    const int client = accept(server, nullptr, nullptr);
    const std::string text(256, 'x');
    (void)!write(client, text.data(), text.size());
    char ignored = 0;
    while (read(client, &ignored, 1) > 0) continue;
    close(client);
  });
  std::atomic<int> printed = 0;
  set_log([&](LogLevel level, std::string_view, std::string_view) {
    if (level != LogLevel::info) ++printed;
  });
  const auto [text, detail] = test::error_of([&] {
    (void)connect({"127.0.0.1", ntohs(at.sin_port)}, patience);
  });
  set_log({});
  EXPECT_EQ(printed, 0) << "what the error says is printed as well";
  EXPECT_THAT(text, ::testing::HasSubstr("something else than RDMA"));
  EXPECT_THAT(text, ::testing::HasSubstr("WEFT_PORT_OFFSET"));
  EXPECT_THAT(detail.peer, ::testing::HasSubstr("127.0.0.1"));
  talker.join();
  close(server);
}

TEST(Connection, NothingIsAdvertisedAfterTheEnd) {
  Options options;
  options.advertisements = true;
  Sides sides(options);
  const auto buffer = sides.active->allocate(8, Access::remote_write);
  sides.active->disconnect();
  const auto [text, detail] = test::error_of([&] { sides.active->advertise(buffer.remote()); });
  EXPECT_THAT(text, ::testing::HasSubstr("the connection has ended"));
}

TEST(Connection, PrivateDataArrivesUnchanged) {
  for (const bool advertisements : {false, true}) {
    Options options;
    options.advertisements = advertisements;
    Sides sides(options, {.private_data = bytes_of("from the active side")},
                {.private_data = bytes_of("and back")});
    EXPECT_EQ(text_of(sides.passive->peer_private_data()), "from the active side");
    EXPECT_EQ(text_of(sides.active->peer_private_data()), "and back");
    EXPECT_EQ(sides.active->can_advertise(), advertisements);
  }
}

TEST(Connection, TooMuchPrivateDataIsRefusedWithTheLimit) {
  const Listener listener({test::host(), 0});
  const std::vector<std::byte> much(max_private_data_bytes({}) + 1);
  try {
    (void)connect({test::host(), listener.port()}, patience, {}, {.private_data = much});
    FAIL() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
    EXPECT_NE(std::string(error.what()).find(std::to_string(much.size() - 1)), std::string::npos);
  }
}

TEST(Connection, ABufferMayGoAlongWithTheGreeting) {
  Options options;
  options.advertisements = true;
  Listener listener({test::host(), 0}, options);
  auto accepted = std::async(std::launch::async, [&] { return listener.accept(patience); });
  Prepared prepared({test::host(), listener.port()}, options, patience);
  const auto buffer = prepared.allocate(100, Access::remote_write);
  const auto active = std::move(prepared).connect({.buffer = buffer.remote()}, patience);
  auto passive = accepted.get();
  const auto told = passive.await_advertisement(patience);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->buffer, buffer.remote());
}

TEST(Connection, AdvertisementsKeepTheirOrderAndHaveBounds) {
  Options options;
  options.advertisements = true;
  Sides sides(options);
  const auto buffer = sides.active->allocate(1000, Access::remote_write);
  std::uint32_t advertised = 0;
  try {
    for (; advertised < 1000; ++advertised) {
      sides.active->advertise(buffer.remote().slice(advertised, 1), advertised);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EAGAIN);
  }
  EXPECT_EQ(advertised, 64U);
  for (std::uint32_t i = 0; i < 500; ++i) {
    const auto told = sides.passive->await_advertisement(patience);
    ASSERT_TRUE(told) << i;
    EXPECT_EQ(told->tag, i);
    EXPECT_EQ(told->buffer, buffer.remote().slice(i, 1));
    // There is room again once the peer has read some records and reported it.
    while (advertised <= i + 16) {
      try {
        sides.active->advertise(buffer.remote().slice(advertised, 1), advertised);
        ++advertised;
      } catch (const Error& error) {
        ASSERT_EQ(error.error_number(), EAGAIN);
        std::this_thread::yield();
      }
    }
  }
}

Options with_a_short_queue() {
  Options options;
  options.advertisements = true;
  options.queue_depth = 2;
  return options;
}

// Requests that the program has posted itself take the last places of the queue.
TEST(Connection, AnAdvertisementThatFindsNoRoomLeavesNoGap) {
  if (test::is_foreign_iwarp(test::open_device())) {
    GTEST_SKIP() << "a Send that finds no receive ends a connection of this device";
  }
  Sides sides(with_a_short_queue());
  Connection& active = *sides.active;
  const auto buffer = active.allocate(64, Access::remote_write);
  auto& queue_pair = const_cast<verbs::QueuePair&>(active.queue_pair());
  int posted = 0;
  while (queue_pair.post_send(buffer.slice(0, 0), 77) == 0) ++posted;
  EXPECT_THROW(active.advertise(buffer.remote(), 1), Error);
  for (int i = 0; i < posted; ++i) {
    ASSERT_EQ(sides.passive->post_receive(std::span<const LocalSlice>{}, 1), 0);
    ASSERT_EQ(sides.passive->await(Queue::receive, 1, patience).size(), 1U);
  }
  const Deadline deadline = patience;
  for (bool done = false; !done && !deadline.passed();) {
    try {
      active.advertise(buffer.remote(), 2);
      done = true;
    } catch (const Error&) {
      (void)active.await(Queue::send, 1, 10ms);
    }
  }
  const auto told = sides.passive->await_advertisement(patience);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->tag, 2U);
}

TEST(Connection, NoAdvertisementIsLostWhereTheQueueIsFull) {
  if (test::is_foreign_iwarp(test::open_device())) {
    GTEST_SKIP() << "a Send that finds no receive ends a connection of this device";
  }
  Sides sides(with_a_short_queue());
  const auto buffer = sides.active->allocate(64, Access::remote_write);
  const auto message = sides.passive->allocate(8);
  // No receive takes these.
  for (std::uint64_t i = 0; i < 2; ++i)
    EXPECT_EQ(sides.passive->post_send(message.slice(0, 8), i), 0);
  constexpr std::uint32_t count = 20;
  for (std::uint32_t i = 0; i < count;) {
    try {
      sides.active->advertise(buffer.remote(), i);
      ++i;
    } catch (const Error&) {
      std::this_thread::yield();
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto told = sides.passive->await_advertisement(patience);
    ASSERT_TRUE(told) << i;
    EXPECT_EQ(told->tag, i);
  }
}

TEST(Connection, AdvertisingToAPeerThatDoesNotIsAnError) {
  Sides sides;
  const auto buffer = sides.active->allocate(8);
  try {
    sides.active->advertise(buffer.remote());
    FAIL() << "advertised";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EOPNOTSUPP);
  }
}

TEST(Connection, BeyondThePeersBufferNothingIsSent) {
  Sides sides;
  const auto own = sides.active->allocate(64);
  const auto theirs = sides.passive->allocate(64, Access::remote_read_write);
  auto& active = *sides.active;
  EXPECT_EQ(active.post_write(own.slice(0, 33), theirs.remote(), 32, 1), EMSGSIZE);
  EXPECT_EQ(active.post_read(own.slice(0, 1), theirs.remote(), 64, 1), EMSGSIZE);
  EXPECT_EQ(active.post_write(own.slice(0, 1), theirs.remote(), ~std::uint64_t{0}, 1), EMSGSIZE);
  EXPECT_EQ(active.post_write(own.slice(0, 32), theirs.remote(), 32, 2), 0);
  EXPECT_EQ(active.await(Queue::send, 1, patience).at(0).id, 2U);
}

TEST(Connection, UnsignaledRequestsNeverClogTheQueue) {
  Options options;
  options.queue_depth = 8;
  Sides sides(options);
  const auto own = sides.active->allocate(8);
  const auto theirs = sides.passive->allocate(8, Access::remote_write);
  for (int i = 0; i < 10000; ++i) {
    int failed = ENOMEM;
    while (failed == ENOMEM) {
      failed = sides.active->post_write(own.slice(), theirs.remote(), 0, 1, SendFlags::none);
    }
    ASSERT_EQ(failed, 0);
  }
  int failed = ENOMEM;
  while (failed == ENOMEM) failed = sides.active->post_write(own.slice(), theirs.remote(), 0, 99);
  const auto outcomes = sides.active->await(Queue::send, 1, patience);
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].id, 99U);
  EXPECT_TRUE(sides.active->await(Queue::send, 1, Deadline::now()).empty());
}

TEST(Connection, ASharedDomainServesTwoConnections) {
  Sides first;
  Options options;
  options.domain = &first.active->domain();
  auto second_accepted =
      std::async(std::launch::async, [&] { return first.listener.accept(patience); });
  auto second = connect({test::host(), first.listener.port()}, patience, options);
  auto passive = second_accepted.get();
  const auto own = first.active->allocate(8);
  const auto theirs = passive.allocate(8, Access::remote_write);
  ASSERT_EQ(second.post_write(own.slice(), theirs.remote(), 0, 1), 0);
  EXPECT_TRUE(second.await(Queue::send, 1, patience).at(0).ok());
}

TEST(Connection, MemoryOfAnotherDomainFails) {
  Sides first;
  Sides second;
  const auto own = first.active->allocate(8);
  const auto theirs = second.passive->allocate(8, Access::remote_write);
  ASSERT_EQ(second.active->post_write(own.slice(), theirs.remote(), 0, 1), 0);
  const auto outcome = second.active->await(Queue::send, 1, patience).at(0);
  EXPECT_FALSE(outcome.ok());
  if (!test::own_device()) return;  // the kernel's software devices give another status
  EXPECT_EQ(outcome.status, IBV_WC_LOC_PROT_ERR);
}

// libiwarp's free_buf_flag: destroying a buffer frees the memory that it owns, and of the user's
// memory only the registration. AddressSanitizer detects a violation.
TEST(Connection, ABuffersEndReleasesTheUsersMemoryAndDestroysItsOwn) {
  Sides sides;
  auto& active = *sides.active;
  const auto from = active.allocate(8);
  fill(from.elements(), 5);
  std::vector<std::byte> users(8);
  const auto kept = [&] {
    const Buffer registered = sides.passive->register_buffer(users, Access::remote_write);
    const Buffer own = sides.passive->allocate(8, Access::remote_write);
    EXPECT_EQ(active.post_write(from.slice(), registered.remote(), 0, 1), 0);
    EXPECT_EQ(active.post_write(from.slice(), own.remote(), 0, 2), 0);
    EXPECT_EQ(active.await(Queue::send, 2, patience).size(), 2U);
    EXPECT_TRUE(std::ranges::equal(own.elements(), from.elements()));
    return registered.remote();
  }();
  EXPECT_TRUE(std::ranges::equal(users, from.elements()));
  WEFT_NEEDS_PEER_ERRORS(test::open_device());
  std::ranges::fill(users, std::byte{0});
  ASSERT_EQ(active.post_write(from.slice(), kept, 0, 3), 0);
  EXPECT_EQ(active.await(Queue::send, 1, patience).at(0).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(std::ranges::all_of(users, [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST(Connection, DisconnectionReachesBothSidesOnceAndFlushes) {
  Sides sides;
  const auto buffer = sides.passive->allocate(8);
  ASSERT_EQ(sides.passive->post_receive(buffer.slice(), 5), 0);
  sides.active->disconnect();
  sides.active->disconnect();
  EXPECT_TRUE(sides.passive->await_disconnect(patience));
  EXPECT_TRUE(sides.active->await_disconnect(patience));
  // Waits for more outcomes than there are: the connection has ended, so await() returns without a
  // timeout.
  const auto flushed = sides.passive->await(Queue::receive, 3, patience);
  ASSERT_EQ(flushed.size(), 1U);
  EXPECT_EQ(flushed[0].id, 5U);
  EXPECT_EQ(flushed[0].status, IBV_WC_WR_FLUSH_ERR);
}

TEST(Connection, AnEndWakesWhoWaits) {
  Sides sides;
  auto waiting = std::async(std::launch::async,
                            [&] { return sides.passive->await(Queue::receive, 1, patience); });
  auto told =
      std::async(std::launch::async, [&] { return sides.active->await_disconnect(patience); });
  sides.active->disconnect();
  EXPECT_TRUE(waiting.get().empty());
  EXPECT_TRUE(told.get());
}

TEST(Connection, EveryWaitHasADeadline) {
  Listener listener({test::host(), 0});
  EXPECT_FALSE(listener.next(Deadline::now()));
  try {
    (void)listener.accept(1ms);
    FAIL() << "accepted nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), ETIMEDOUT);
  }
  // The listener exists, but does not accept.
  try {
    (void)connect({test::host(), listener.port()}, 20ms);
    FAIL() << "connected to nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), ETIMEDOUT);
  }
  Options options;
  options.advertisements = true;
  Sides sides(options);
  EXPECT_TRUE(sides.active->await(Queue::send, 1, 1ms).empty());
  EXPECT_FALSE(sides.active->await_advertisement(1ms));
  EXPECT_FALSE(sides.active->await_disconnect(1ms));
}

TEST(Connection, EveryWaitCanBeStopped) {
  std::stop_source source;
  Sides sides;
  Listener listener({test::host(), 0});
  const Listener silent({test::host(), 0});
  auto next = std::async(std::launch::async, [&] {
    return listener.next(Deadline::never(), source.get_token()).has_value();
  });
  auto outcomes = std::async(std::launch::async, [&] {
    return sides.active->await(Queue::send, 1, Deadline::never(), source.get_token()).size();
  });
  auto end = std::async(std::launch::async, [&] {
    return sides.passive->await_disconnect(Deadline::never(), source.get_token());
  });
  auto asked = std::async(std::launch::async, [&] {
    try {
      (void)connect({test::host(), silent.port()}, Deadline::never(), {}, {}, source.get_token());
    } catch (const Error& error) {
      return error.error_number();
    }
    return 0;
  });
  source.request_stop();
  EXPECT_EQ(asked.get(), ECANCELED);
  EXPECT_EQ(outcomes.get(), 0U);
  EXPECT_FALSE(end.get());
  (void)next.get();  // the request of the cancelled attempt may have arrived first
}

TEST(Connection, ARejectionCarriesTheReason) {
  Listener listener({test::host(), 0});
  auto rejecting = std::async(std::launch::async, [&] {
    auto request = listener.next(patience);
    const std::string said = text_of(request->private_data());
    std::move(*request).reject(bytes_of("not today"));
    return said;
  });
  try {
    (void)connect({test::host(), listener.port()}, patience, {},
                  {.private_data = bytes_of("may I?")});
    FAIL() << "connected";
  } catch (const Rejected& rejected) {
    EXPECT_EQ(rejected.error_number(), ECONNREFUSED);
    EXPECT_EQ(text_of(rejected.private_data()), "not today");
  }
  EXPECT_EQ(rejecting.get(), "may I?");
}

TEST(Connection, NobodyListens) {
  std::uint16_t port = 0;
  { port = Listener({test::host(), 0}).port(); }
  try {
    (void)connect({test::host(), port}, patience);
    FAIL() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), ECONNREFUSED);
  }
}

TEST(Connection, ReceivesPostedBeforeAcceptingAreThereInTime) {
  Listener listener({test::host(), 0});
  auto accepted = std::async(std::launch::async, [&] {
    auto request = listener.next(patience);
    auto buffer = request->allocate(16);
    EXPECT_EQ(request->post_receive(buffer.slice(), 1), 0);
    auto connection = std::move(*request).accept({}, patience);
    const auto outcomes = connection.await(Queue::receive, 1, patience);
    return outcomes.size() == 1 && outcomes[0].ok() && buffer[0] == std::byte{42};
  });
  auto active = connect({test::host(), listener.port()}, patience);
  auto buffer = active.allocate(16);
  buffer[0] = std::byte{42};
  ASSERT_EQ(active.post_send(buffer.slice(), 1), 0);
  EXPECT_TRUE(active.await(Queue::send, 1, patience).at(0).ok());
  EXPECT_TRUE(accepted.get());
}

TEST(Connection, PlainVerbsMayBeMixedIn) {
  Sides sides;
  auto own = sides.active->allocate(8);
  const auto theirs = sides.passive->allocate(8, Access::remote_write);
  ibv_sge piece = own.slice().raw();
  ibv_send_wr request{};
  request.wr_id = 1234;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = theirs.remote().address();
  request.wr.rdma.rkey = theirs.remote().rkey();
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(sides.active->queue_pair().raw(), &request, &bad), 0);
  ASSERT_EQ(sides.active->post_write(own.slice(), theirs.remote(), 0, 5), 0);
  const auto outcomes = sides.active->await(Queue::send, 2, patience);
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_EQ(outcomes[0].id, 1234U);
  EXPECT_EQ(outcomes[1].id, 5U);
}

// The device has room for the first part only, since sends that it does not know of wait for
// receives of the peer.
TEST(Connection, AReadOfWhichOnlyAPartIsPostedFailsWhenThatPartIsDone) {
  if (test::is_foreign_iwarp(test::open_device())) {
    GTEST_SKIP() << "sends of this device do not wait for receives of the peer";
  }
  Options options;
  options.queue_depth = 8;
  options.slices = 1;
  Sides sides(options);
  auto& active = *sides.active;
  const auto own = active.allocate(128);
  const auto theirs = sides.passive->allocate(128, Access::remote_read);
  std::uint32_t sends = 0;
  const auto capacity = active.queue_pair().query(IBV_QP_CAP).initial.cap.max_send_wr;
  while (sends + 1 < capacity) {
    ASSERT_EQ(active.queue_pair().post_send(own.slice(0, 1), 100 + sends), 0);
    ++sends;
  }
  const std::array into{own.slice(0, 8), own.slice(8, 8)};
  ASSERT_EQ(active.post_read(into, theirs.remote(), 0, 7), 0);
  EXPECT_TRUE(active.await(Queue::send, 1, Deadline::now()).empty()) << "the part is under way";
  const auto arrived = sides.passive->allocate(1);
  for (std::uint32_t i = 0; i < sends; ++i) {
    ASSERT_EQ(sides.passive->post_receive(arrived.slice(), i), 0);
  }
  const auto outcomes = active.await(Queue::send, sends + 1, patience);
  ASSERT_EQ(outcomes.size(), sends + 1);
  EXPECT_EQ(outcomes.back().id, 7U);
  EXPECT_EQ(outcomes.back().status, IBV_WC_LOC_QP_OP_ERR);
}

TEST(Connection, DescriptorsTellWhenToLook) {
  Sides sides;
  const auto buffer = sides.passive->allocate(8);
  ASSERT_EQ(sides.passive->post_receive(buffer.slice(), 1), 0);
  EXPECT_TRUE(sides.passive->await(Queue::receive, 1, Deadline::now()).empty());
  const auto own = sides.active->allocate(8);
  ASSERT_EQ(sides.active->post_send(own.slice(), 2), 0);
  pollfd entry{sides.passive->fd(Queue::receive), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 30'000), 1);
  EXPECT_EQ(sides.passive->await(Queue::receive, 1, Deadline::now()).size(), 1U);
  sides.active->disconnect();
  entry = {sides.passive->disconnect_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 30'000), 1);
  EXPECT_TRUE(sides.passive->await_disconnect(Deadline::now()));
}

void await_readable(std::initializer_list<int> fds) {
  std::vector<pollfd> entries;
  for (const int fd : fds) entries.push_back({fd, POLLIN, 0});
  ASSERT_GT(poll(entries.data(), entries.size(), 30'000), 0);
}

// Both ends run on one thread that blocks in poll(2) only.
TEST(Connection, EverythingCanBeDoneWithoutWaiting) {
  Options options;
  options.advertisements = true;
  Listener listener({test::host(), 0}, options);
  Attempt asking({test::host(), listener.port()}, options, {.private_data = bytes_of("hello")});
  std::optional<Attempt> answering;
  std::optional<Connection> active;
  std::optional<Connection> passive;
  while (!active || !passive) {
    await_readable({asking.fd(), listener.fd(), answering ? answering->fd() : -1});
    if (!active) active = asking.take();
    if (!answering) {
      if (auto request = listener.next(Deadline::now())) answering.emplace(std::move(*request));
    } else if (!passive) {
      passive = answering->take();
    }
  }
  EXPECT_EQ(text_of(passive->peer_private_data()), "hello");
  EXPECT_FALSE(asking.take()) << "it was taken";

  std::optional<Advertisement> told = passive->await_advertisement(Deadline::now());
  EXPECT_FALSE(told);
  const auto buffer = active->allocate(8, Access::remote_write);
  active->advertise(buffer.remote(), 3);
  while (!told) {
    await_readable({passive->advertisement_fd()});
    told = passive->await_advertisement(Deadline::now());
  }
  EXPECT_EQ(told->tag, 3U);
  active->disconnect();
  while (!passive->await_disconnect(Deadline::now())) await_readable({passive->disconnect_fd()});
  await_readable({passive->disconnect_fd()});  // still readable, for other waiters
}

// The constructor does not wait for a name server; what comes of the lookup is found by take().
TEST(Connection, AnAttemptLooksNamesUpWithoutBlocking) {
  const auto end_of = [](Attempt& attempt) {
    while (!attempt.take()) await_readable({attempt.fd()});
  };
  Attempt lost({"no-such-host.invalid", 7});
  try {
    end_of(lost);
    ADD_FAILURE() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.detail().peer, "no-such-host.invalid port 7");
  }
  const Attempt abandoned({"other-host.invalid", 7});

  if (test::host() != "127.0.0.1") GTEST_SKIP() << "the device is not at the address of localhost";
  Listener listener({test::host(), 0});
  Attempt refused({"localhost", listener.port()});
  std::optional<Request> request;
  while (!request) {
    await_readable({refused.fd(), listener.fd()});
    EXPECT_FALSE(refused.take());
    request = listener.next(Deadline::now());
  }
  request.reset();
  EXPECT_THROW(end_of(refused), Rejected);
}

TEST(Connection, AnAttemptSaysWhyThereIsNone) {
  Listener listener({test::host(), 0});
  Attempt asking({test::host(), listener.port()});
  std::optional<Request> request;
  while (!request) {
    await_readable({asking.fd(), listener.fd()});
    EXPECT_FALSE(asking.take());
    request = listener.next(Deadline::now());
  }
  std::move(*request).reject(bytes_of("no"));
  const auto finish = [&] {
    while (!asking.take()) await_readable({asking.fd()});
  };
  EXPECT_THROW(finish(), Rejected);
}

// One thread polls the queue and hands over to the next when it has its outcome.
TEST(Connection, ManyThreadsWaitForOneQueue) {
  Sides sides;
  const auto own = sides.active->allocate(8);
  const auto theirs = sides.passive->allocate(8, Access::remote_write);
  std::vector<std::future<std::size_t>> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] {
      std::size_t found = 0;
      for (int round = 0; round < 50; ++round) {
        found += sides.active->await(Queue::send, 1, patience).size();
      }
      return found;
    }));
  }
  for (int i = 0; i < 400; ++i) {
    int failed = ENOMEM;
    while (failed == ENOMEM) failed = sides.active->post_write(own.slice(), theirs.remote(), 0, 1);
    ASSERT_EQ(failed, 0);
  }
  for (auto& thread : waiting) EXPECT_EQ(thread.get(), 50U);
}

}  // namespace
}  // namespace weft::connection
