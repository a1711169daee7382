// Handles that were moved from, or that a call has emptied: each call throws std::logic_error.
#include "support/empty_handle.h"

#include "stream/sides.h"

namespace weft::stream {
namespace {

using test::expect_empty;

TEST(EmptyHandle, Streams) {
  Sides sides;
  Stream& empty = sides.active;
  Stream kept = std::move(empty);
  std::array<std::byte, 4> bytes{};
  expect_empty(
      "weft::stream::Stream", [&] { (void)empty.send(bytes); }, [&] { (void)empty.receive(bytes); },
      [&] { (void)empty.peek_send(); }, [&] { (void)empty.peek_receive(); },
      [&] { (void)empty.bytes_available(); }, [&] { (void)empty.fd(); },
      [&] { (void)empty.send_fd(); }, [&] { (void)empty.view(Deadline::now()); },
      [&] { empty.consume(0); }, [&] { (void)empty.state(); }, [&] { (void)empty.error_number(); },
      [&] { (void)empty.variant(); }, [&] { (void)empty.options(); },
      [&] { empty.set_options({}); }, [&] { (void)empty.local_address(); },
      [&] { (void)empty.peer_address(); }, [&] { (void)empty.peer_private_data(); },
      [&] {
        empty.bind({"127.0.0.1", 0});
      },
      [&] {
        empty.connect({"127.0.0.1", 1}, Deadline::now());
      },
      [&] { empty.finish(); }, [&] { (void)empty.close(Deadline::now()); },
      [&] { (void)empty.close_if_sent(); }, [&] { empty.abort(); },
      [&] { (void)empty.statistics(); }, [&] { empty.attach(nullptr); },
      [&] { (void)empty.readiness(); }, [&] { (void)empty.map_buffer(bytes, -1); },
      [&] { empty.unmap_buffer(bytes); }, [&] { (void)empty.write_mapped(bytes, 0); },
      [&] { (void)empty.id(); }, [&] { (void)empty.domain(); });
  empty = std::move(kept);
  EXPECT_TRUE(empty.send(bytes).ok());

  EventQueue queue;
  EventQueue kept_queue = std::move(queue);
  expect_empty(
      "weft::stream::EventQueue", [&] { (void)queue.next(Deadline::now()); },
      [&] { (void)queue.fd(); }, [&] { empty.attach(&queue); });
}

TEST(EmptyHandle, ListenersAndDecidedRequests) {
  Listener listener({test::host(), 0});
  listener.listen();
  Stream active;
  active.start_connecting({test::host(), listener.port()});
  auto request = listener.next(test_timeout);
  ASSERT_TRUE(request);
  const Stream passive = std::move(*request).accept();
  const auto check = [](Request& empty) {
    expect_empty(
        "weft::stream::Request", [&] { (void)std::move(empty).accept(); },
        [&] { (void)std::move(empty).accept({}, Options()); }, [&] { std::move(empty).reject(); },
        [&] { (void)empty.private_data(); }, [&] { (void)empty.peer_address(); },
        [&] { (void)empty.local_address(); });
  };
  check(*request);
  const Request moved = std::move(*request);
  check(*request);

  const Listener kept = std::move(listener);
  expect_empty(
      "weft::stream::Listener", [&] { listener.listen(); }, [&] { (void)listener.port(); },
      [&] { (void)listener.local_address(); }, [&] { (void)listener.next(Deadline::now()); },
      [&] { (void)listener.accept(Deadline::now()); }, [&] { (void)listener.fd(); },
      [&] { listener.attach(nullptr); }, [&] { (void)listener.refused(); },
      [&] { (void)listener.id(); });
}

}  // namespace
}  // namespace weft::stream
