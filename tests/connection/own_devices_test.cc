// Several embedded devices in one process: connections, messages and streams on the one that the
// program names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "weft/connection.hpp"
#include "weft/message.hpp"
#include "weft/stream.hpp"

namespace weft {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds timeout{30};

// The file with the statistics of a device, which is written when the device is closed.
class StatisticsFile {
 public:
  StatisticsFile()
      : path_(std::filesystem::temp_directory_path() /
              ("own_devices." + std::to_string(getpid()) + "." + std::to_string(++made))) {}
  ~StatisticsFile() { std::filesystem::remove(path_); }
  StatisticsFile(const StatisticsFile&) = delete;
  StatisticsFile& operator=(const StatisticsFile&) = delete;

  [[nodiscard]] std::string path() const { return path_; }
  // The first number behind this text; nothing where the text is not there.
  [[nodiscard]] std::optional<int> number_behind(const std::string& text) const {
    std::stringstream content;
    content << std::ifstream(path_).rdbuf();
    const std::string all = content.str();
    const auto at = all.find(text);
    if (at == std::string::npos) return std::nullopt;
    return std::atoi(all.c_str() + at + text.size());
  }

 private:
  static inline int made = 0;
  std::filesystem::path path_;
};

// Two devices of different options. Their traffic stays on TCP, as between hosts.
struct Devices {
  StatisticsFile of_server;
  StatisticsFile of_client;
  verbs::Context server = verbs::open_own_device({.address = "127.0.0.1",
                                                  .personality = DeviceOptions::Personality::iwarp,
                                                  .same_host = DeviceOptions::SameHost::off,
                                                  .crc = false,
                                                  .statistics = of_server.path()});
  verbs::Context client = verbs::open_own_device({.address = "127.0.0.1",
                                                  .same_host = DeviceOptions::SameHost::off,
                                                  .statistics = of_client.path(),
                                                  .adapter = "max_qp=9"});
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

TEST(OwnDevices, CarryAConnection) {
  auto devices = std::make_unique<Devices>();
  {
    connection::Options options;
    options.device = &devices->server;
    connection::Listener listener({"127.0.0.1", 0}, options);
    auto accepted = std::async(std::launch::async, [&] { return listener.accept(timeout); });
    options.device = &devices->client;
    auto active = connection::connect({"127.0.0.1", listener.port()}, timeout, options);
    auto passive = accepted.get();
    EXPECT_EQ(passive.domain().context().device_name(), devices->server.device_name());
    EXPECT_EQ(active.domain().context().device_name(), devices->client.device_name());
    EXPECT_EQ(active.domain().context().raw(), devices->client.raw());
    EXPECT_EQ(active.domain().context().query().max_qp, 9);
    EXPECT_EQ(passive.domain().context().query_port().is_ethernet(), true);

    const auto into = passive.allocate(64);
    ASSERT_EQ(passive.post_receive(into.slice(), 1), 0);
    const auto from = active.allocate(64);
    std::memcpy(from.elements().data(), "hello", 5);
    ASSERT_EQ(active.post_send(from.slice(0, 5), 1), 0);
    const auto received = passive.await(connection::Queue::receive, 1, timeout);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].size_bytes, 5U);
    ASSERT_EQ(active.await(connection::Queue::send, 1, timeout).size(), 1U);
    active.disconnect();
    EXPECT_TRUE(passive.await_disconnect(timeout));
  }
  // The files are written when the devices close.
  const auto files = std::move(devices);
  files->server = verbs::open_own_device({.address = "127.0.0.1"});
  files->client = verbs::open_own_device({.address = "127.0.0.1"});
  EXPECT_EQ(files->of_client.number_behind("\"sends\": {\"operations\": "), 1);
  EXPECT_EQ(files->of_server.number_behind("\"sends\": {\"operations\": "), 0);
  EXPECT_EQ(files->of_server.number_behind("\"received\": {\"operations\": "), 1);
  EXPECT_EQ(files->of_client.number_behind("\"received\": {\"operations\": "), 0);
}

// One connection from a client that sends, to a server that does not receive everything. The
// connection stays on TCP.
struct Unread {
  Unread() {
    connection::Options options;
    options.device = &server_device;
    connection::Listener listener({"127.0.0.1", 0}, options);
    auto accepted = std::async(std::launch::async, [&] { return listener.accept(timeout); });
    options.device = &client_device;
    client.emplace(connection::connect({"127.0.0.1", listener.port()}, timeout, options));
    server.emplace(accepted.get());
    from.emplace(client->allocate(16));
    into.emplace(server->allocate(16));
  }

  verbs::Context server_device =
      verbs::open_own_device({.address = "127.0.0.1", .same_host = DeviceOptions::SameHost::off});
  verbs::Context client_device =
      verbs::open_own_device({.address = "127.0.0.1", .same_host = DeviceOptions::SameHost::off});
  std::optional<connection::Connection> client;
  std::optional<connection::Connection> server;
  std::optional<connection::Buffer> from;
  std::optional<connection::Buffer> into;
};

// No receive is posted, so the Sends wait at the server, which disconnects. The client sees that.
TEST(OwnDevices, CountSendsThatWereNotReceived) {
  Unread pair;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(pair.client->post_send(pair.from->slice(0, id), id), 0);
  }
  while (pair.server->queue_pair().counters().rnr_waits == 0) std::this_thread::yield();
  pair.server->disconnect();
  const auto outcomes = pair.client->await(connection::Queue::send, 3, timeout);
  ASSERT_EQ(outcomes.size(), 3U);
  for (const auto& outcome : outcomes) EXPECT_FALSE(outcome.ok());
  pair.server.reset();
  const QueuePairCounters counted = pair.server_device.counters().queue_pairs;
  EXPECT_GE(counted.unreceived.operations, 1U);
  EXPECT_LE(counted.unreceived.operations, 3U) << "the last ones may have come after the end";
  EXPECT_EQ(counted.received.operations, 0U);
  EXPECT_EQ(counted.unpolled_receives, 0U);
}

// Three Sends are received, and the program takes one outcome before it destroys the connection.
TEST(OwnDevices, CountReceivesThatWereNotAwaited) {
  Unread pair;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(pair.server->post_receive(pair.into->slice(), id), 0);
    ASSERT_EQ(pair.client->post_send(pair.from->slice(), id), 0);
  }
  for (const auto& outcome : pair.client->await(connection::Queue::send, 3, timeout)) {
    EXPECT_TRUE(outcome.ok()) << outcome.status_name();
  }
  EXPECT_EQ(pair.server->await(connection::Queue::receive, 1, timeout).size(), 1U);
  pair.server.reset();
  const QueuePairCounters counted = pair.server_device.counters().queue_pairs;
  EXPECT_EQ(counted.unpolled_receives, 2U);
  EXPECT_EQ(counted.unreceived.operations, 0U);
}

TEST(OwnDevices, StayOpenForTheirConnections) {
  std::optional<verbs::Context> device = verbs::open_own_device({.address = "127.0.0.1"});
  connection::Options options;
  options.device = &*device;
  connection::Listener listener({"127.0.0.1", 0}, options);
  auto accepted = std::async(std::launch::async, [&] { return listener.accept(timeout); });
  connection::Prepared prepared({"127.0.0.1", listener.port()}, options, timeout);
  device.reset();
  auto active = std::move(prepared).connect({}, timeout);
  auto passive = accepted.get();
  const auto buffer = active.allocate(64);
  active.disconnect();
  EXPECT_TRUE(passive.await_disconnect(timeout));
}

TEST(OwnDevices, CarryMessages) {
  const Devices devices;
  message::EventLoop server({}, devices.server);
  message::EventLoop client({}, devices.client);
  std::string got;
  bool over = false;
  const auto listener = server.listen({"127.0.0.1", 0}, [&](message::Request request) {
    request.accept({.message = [](message::Connection& peer, message::Received& received) {
      peer.send(received.bytes());
    }});
  });
  client.connect({"127.0.0.1", listener.port()},
                 {.established = [](message::Connection& peer) { peer.send("there and back"); },
                  .message =
                      [&](message::Connection& peer, message::Received& received) {
                        const auto bytes = received.bytes();
                        got.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                        peer.disconnect();
                      },
                  .error = [](auto&, const Error& error) { ADD_FAILURE() << error.what(); },
                  .disconnected = [&](auto&, auto&) { over = true; }});
  const Deadline deadline = timeout;
  while (!over && !deadline.passed()) {
    server.step(std::chrono::milliseconds(1));
    client.step(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(got, "there and back");
}

TEST(OwnDevices, CarryStreams) {
  const Devices devices;
  stream::Options options;
  options.device = &devices.server;
  stream::Listener listener({"127.0.0.1", 0}, options);
  auto accepted = std::async(std::launch::async, [&] { return listener.accept(timeout); });
  options.device = &devices.client;
  stream::Stream active(options);
  // The options that the stream returns can be set again.
  active.set_options(active.options());
  active.connect({"127.0.0.1", listener.port()}, timeout);
  stream::Stream passive = accepted.get();
  EXPECT_EQ(active.domain().context().device_name(), devices.client.device_name());
  EXPECT_EQ(passive.domain().context().device_name(), devices.server.device_name());
  const std::string text = "bytes";
  EXPECT_TRUE(active.send(std::as_bytes(std::span(text)), timeout).ok());
  std::array<std::byte, 16> into{};
  EXPECT_EQ(passive.receive(into, timeout).bytes, text.size());
  EXPECT_TRUE(passive.close(timeout));
  EXPECT_TRUE(active.receive(into, timeout).end());
}

TEST(OwnDevices, AreNotMixed) {
  const Devices devices;
  const auto domain = devices.client.create_domain();
  connection::Options options;
  options.device = &devices.server;
  options.domain = &domain;
  connection::Options listening;
  listening.device = &devices.server;
  const connection::Listener listener({"127.0.0.1", 0}, listening);
  EXPECT_THAT(error_of([&] {
                (void)connection::connect({"127.0.0.1", listener.port()}, timeout, options);
              }),
              HasSubstr("the shared protection domain belongs to the device"));
  // An id stays on its device.
  const verbs::EventChannel here(devices.server);
  const verbs::EventChannel there(devices.client);
  verbs::Id id(here);
  EXPECT_THAT(error_of([&] { id.migrate(there); }), HasSubstr("event channel"));
  id.migrate(verbs::EventChannel(devices.server));
  id.migrate(id.new_channel());
}

TEST(OwnDevices, OfStreamsAreNotChangedBehindTheirPeers) {
  const Devices devices;
  stream::Options options;
  options.device = &devices.server;
  stream::Listener listener({"127.0.0.1", 0}, options);
  stream::Stream active;
  active.start_connecting({"127.0.0.1", listener.port()});
  auto request = listener.next(timeout);
  ASSERT_TRUE(request);
  options.device = &devices.client;
  EXPECT_THAT(error_of([&] { (void)std::move(*request).accept({}, options); }),
              HasSubstr("accept it with the device of its listener"));
}

TEST(OwnDevices, WithManualProgressHaveNoConnections) {
  const auto device =
      verbs::open_own_device({.address = "127.0.0.1", .progress = DeviceOptions::Progress::manual});
  EXPECT_THAT(error_of([&] { const verbs::EventChannel channel(device); }),
              HasSubstr("Progress::automatic"));
}

// The device that the process shares can be named as well.
TEST(OwnDevices, MayBeTheDefault) {
  const auto device = verbs::devices().front().open();
  connection::Options options;
  options.device = &device;
  connection::Listener listener({"127.0.0.1", 0}, options);
  auto accepted = std::async(std::launch::async, [&] { return listener.accept(timeout); });
  auto active = connection::connect({"127.0.0.1", listener.port()}, timeout);
  auto passive = accepted.get();
  EXPECT_EQ(active.domain().context().device_name(), passive.domain().context().device_name());
}

}  // namespace
}  // namespace weft
