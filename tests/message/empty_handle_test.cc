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

TEST(EmptyHandle, RequestsThatWereMovedOrDecided) {
  EventLoop loop;
  std::optional<Request> arrived;
  const Listener listener =
      loop.listen({test::host(), 0}, [&](Request request) { arrived.emplace(std::move(request)); });
  const Connection active = loop.connect({test::host(), listener.port()}, {});
  until(loop, [&] { return arrived.has_value(); });
  Request kept = std::move(*arrived);
  expect_empty(
      "weft::message::Request", [&] { arrived->accept({}); }, [&] { arrived->accept_on(loop, {}); },
      [&] { arrived->reject(); }, [&] { (void)arrived->private_data(); },
      [&] { (void)arrived->peer_address(); });
  kept.reject();
  try {
    kept.accept({});
    FAIL() << "a request is accepted after it was rejected";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EALREADY);
  }
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
