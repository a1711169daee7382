// Handles that were moved from, or that a call has emptied: each call throws std::logic_error.
#include "support/empty_handle.h"

#include <chrono>
#include <future>
#include <optional>
#include <vector>

#include "support/device.h"
#include "weft/connection.hpp"

namespace weft::connection {
namespace {

using namespace std::chrono_literals;
using test::expect_empty;
constexpr auto patience = 30s;

TEST(EmptyHandle, RequestsAreEmptyWhenTheyAreDecided) {
  Listener listener({test::host(), 0});
  auto connecting = std::async(std::launch::async, [&] {
    return connect({test::host(), listener.port()}, patience);
  });
  auto request = listener.next(patience);
  ASSERT_TRUE(request);
  std::optional<Connection> accepted(std::move(*request).accept({}, patience));
  std::optional<Connection> active(connecting.get());
  expect_empty(
      "Request", [&] { (void)std::move(*request).accept({}, patience); },
      [&] { std::move(*request).reject(); }, [&] { (void)request->private_data(); },
      [&] { (void)request->allocate(8); }, [&] { (void)request->peer_address(); },
      [&] { (void)Attempt(std::move(*request)); });

  Connection kept = std::move(*active);
  const auto buffer = kept.allocate(8);
  Connection& empty = *active;
  expect_empty(
      "Connection", [&] { (void)empty.post_send(buffer.slice(), 1); },
      [&] { (void)empty.post_receive(buffer.slice(), 1); },
      [&] { (void)empty.post_write(buffer.slice(), buffer.remote(), 0, 1); },
      [&] { (void)empty.post_read(buffer.slice(), buffer.remote(), 0, 1); },
      [&] { (void)empty.await(Queue::send, 1, Deadline::now()); },
      [&] { (void)empty.fd(Queue::send); }, [&] { (void)empty.can_advertise(); },
      [&] { empty.advertise(buffer.remote()); }, [&] { (void)empty.advertisement_fd(); },
      [&] { (void)empty.await_advertisement(Deadline::now()); }, [&] { empty.disconnect(); },
      [&] { (void)empty.await_disconnect(Deadline::now()); }, [&] { (void)empty.disconnect_fd(); },
      [&] { (void)empty.peer_private_data(); }, [&] { (void)empty.local_address(); },
      [&] { (void)empty.id(); }, [&] { (void)empty.domain(); }, [&] { (void)empty.queue_pair(); },
      [&] { (void)empty.completion_queue(Queue::send); });
  empty = std::move(kept);
  EXPECT_FALSE(empty.peer_address().empty());
}

// A second accept() would call rdma_accept() again, which no peer understands.
TEST(EmptyHandle, ARequestIsDecidedOnceAlsoIfAcceptingItFails) {
  Listener listener({test::host(), 0});
  auto connecting = std::async(std::launch::async, [&] {
    return connect({test::host(), listener.port()}, patience);
  });
  auto request = listener.next(patience);
  ASSERT_TRUE(request);
  const std::vector<std::byte> too_long(1000);
  EXPECT_ANY_THROW((void)std::move(*request).accept({.private_data = too_long}, patience));
  expect_empty("Request", [&] { (void)std::move(*request).accept({}, patience); });
  EXPECT_THROW((void)connecting.get(), Rejected);
}

TEST(EmptyHandle, ListenersAndWhatIsNotConnectedYet) {
  Listener listener({test::host(), 0});
  Prepared prepared({test::host(), listener.port()}, {}, patience);
  Attempt attempt(std::move(prepared));
  expect_empty(
      "Prepared", [&] { (void)std::move(prepared).connect({}, patience); },
      [&] { (void)prepared.allocate(8); }, [&] { (void)Attempt(std::move(prepared)); });
  const Attempt kept_attempt = std::move(attempt);
  expect_empty(
      "weft::connection::Attempt", [&] { (void)attempt.fd(); }, [&] { (void)attempt.take(); });
  const Listener kept = std::move(listener);
  expect_empty(
      "weft::connection::Listener", [&] { (void)listener.port(); }, [&] { (void)listener.fd(); },
      [&] { (void)listener.id(); }, [&] { (void)listener.next(Deadline::now()); },
      [&] { (void)listener.accept(Deadline::now()); });
}

}  // namespace
}  // namespace weft::connection
