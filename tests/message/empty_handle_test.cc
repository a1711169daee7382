// Handles that were moved from, or that a call has emptied: each call throws std::logic_error.
#include "support/empty_handle.h"

#include "message/sides.h"

namespace weft::message::testing {
namespace {

using test::expect_empty;

TEST(EmptyHandle, EventLoopsAndListeners) {
  EventLoop loop;
  Listener listener = loop.listen({test::host(), 0}, [](const Request&) {});
  const Listener kept_listener = std::move(listener);
  expect_empty(
      "weft::message::Listener", [&] { (void)listener.port(); },
      [&] { (void)listener.connections(); }, [&] { (void)listener.turned_away(); });
  EventLoop kept = std::move(loop);
  expect_empty(
      "weft::message::EventLoop", [&] { loop.step(); }, [&] { loop.run(); },
      [&] { loop.run(std::stop_token()); }, [&] { (void)loop.fd(); }, [&] { loop.wake(); },
      [&] { loop.stop(); }, [&] { loop.post([] {}); }, [&] { loop.call([] {}); },
      [&] { loop.after(1ms, [] {}); }, [&] { loop.cancel(1); },
      [&] { loop.spawn([]() -> Task<> { co_return; }()); }, [&] { (void)loop.executor(); },
      [&] { (void)loop.sleep(Deadline::now()); },
      [&] {
        loop.connect({test::host(), 1}, {});
      },
      [&] {
        (void)loop.listen({test::host(), 0}, [](const Request&) {});
      },
      [&] { (void)loop.limits(); }, [&] { (void)loop.connections(); },
      [&] {
        const Acceptor acceptor(loop, {test::host(), 0});
      });
  loop = std::move(kept);
  EXPECT_EQ(loop.connections(), 0U);
}

TEST(EmptyHandle, Connections) {
  Sides sides;
  Connection handle = sides.a;
  const Connection kept = std::move(handle);
  expect_empty(
      "weft::message::Connection", [&] { handle.send("x"); }, [&] { (void)handle.state(); },
      [&] { (void)handle.allocate(1); }, [&] { (void)handle.try_receive(); },
      [&] { (void)handle.receive(); }, [&] { (void)handle.established(); },
      [&] { handle.disconnect(); }, [&] { (void)handle.user(); });
}

// Each call on an empty request, also one whose arguments are not valid.
void expect_empty_request(Request& request, EventLoop& loop) {
  const std::vector<std::byte> too_long(max_private_data_bytes + 1);
  expect_empty(
      "weft::message::Request", [&] { request.accept({}); }, [&] { request.accept_on(loop, {}); },
      [&] { request.reject(); }, [&] { request.reject(too_long); },
      [&] { (void)request.private_data(); }, [&] { (void)request.peer_address(); });
}

enum class Decision { accepted, accepted_on, rejected };

void decide(Request& request, EventLoop& loop, Decision decision) {
  switch (decision) {
    case Decision::accepted:
      request.accept({});
      break;
    case Decision::accepted_on:
      request.accept_on(loop, {});
      break;
    case Decision::rejected:
      request.reject();
      break;
  }
}

TEST(EmptyHandle, RequestsThatWereMovedOrDecided) {
  for (const auto decision : {Decision::accepted, Decision::accepted_on, Decision::rejected}) {
    EventLoop loop;
    std::optional<Request> arrived;
    const Listener listener = loop.listen(
        {test::host(), 0}, [&](Request request) { arrived.emplace(std::move(request)); });
    const Connection active = loop.connect({test::host(), listener.port()}, {});
    until(loop, [&] { return arrived.has_value(); });
    Request kept = std::move(*arrived);
    expect_empty_request(*arrived, loop);
    decide(kept, loop, decision);
    expect_empty_request(kept, loop);
    *arrived = std::move(kept);
    expect_empty_request(*arrived, loop);
  }
}

// A rejection with too much private data decides nothing.
TEST(EmptyHandle, ARequestIsNotEmptyWhereDecidingHasFailed) {
  EventLoop loop;
  std::optional<Request> arrived;
  const Listener listener =
      loop.listen({test::host(), 0}, [&](Request request) { arrived.emplace(std::move(request)); });
  const Connection active = loop.connect({test::host(), listener.port()}, {});
  until(loop, [&] { return arrived.has_value(); });
  const std::vector<std::byte> too_long(max_private_data_bytes + 1);
  EXPECT_THROW(arrived->reject(too_long), Error);
  EXPECT_FALSE(arrived->peer_address().empty());
  arrived->reject();
  expect_empty_request(*arrived, loop);
}

// An acceptor cannot be moved. Requests that it gives to coroutines follow the rule.
TEST(EmptyHandle, AcceptorsAndTheirRequests) {
  static_assert(!std::is_move_constructible_v<Acceptor> && !std::is_move_assignable_v<Acceptor>);
  EventLoop loop;
  Acceptor acceptor(loop, {test::host(), 0});
  const Connection active = loop.connect({test::host(), acceptor.port()}, {});
  bool over = false;
  loop.spawn([](EventLoop& used, Acceptor& from, bool& seen) -> Task<> {
    auto request = co_await from.next();
    Request kept = std::move(*request);
    expect_empty_request(*request, used);
    const Connection passive = kept.accept({});
    expect_empty_request(kept, used);
    seen = true;
  }(loop, acceptor, over));
  until(loop, [&] { return over; });
  EventLoop kept = std::move(loop);
  expect_empty("weft::message::EventLoop", [&] { const Acceptor other(loop, {test::host(), 0}); });
}

TEST(EmptyHandle, Tasks) {
  EventLoop loop;
  bool threw = false;
  loop.spawn([](bool& seen) -> Task<> {
    auto task = []() -> Task<> { co_return; }();
    auto kept = std::move(task);
    try {
      co_await task;
    } catch (const std::logic_error&) {
      seen = true;
    }
    co_await kept;
  }(threw));
  until(loop, [&] { return threw; });
}

}  // namespace
}  // namespace weft::message::testing
