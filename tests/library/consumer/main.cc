// A program that uses an installed Weft: each layer, by the public headers alone.
#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <weft/capture.hpp>
#include <weft/connection.hpp>
#include <weft/message.hpp>
#include <weft/stream.hpp>
#include <weft/verbs.hpp>
#include <weft/version.hpp>

namespace {

using namespace std::chrono_literals;

void must(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

void capture() {
  // A capture in memory: one packet that is none.
  weft::capture::Analysis analysis;
  weft::capture::RawPacket packet;
  packet.link_type = 1;
  packet.wire_bytes = 60;
  analysis.add(packet);
  analysis.finish();
  must(analysis.totals().frames == 1 && analysis.packet_counts().cut_short == 1, "one frame");
  // Memory of a chunk, filled by hand.
  weft::capture::Reassembly reassembly;
  auto& memory = reassembly.memory_of(0, weft::capture::Side::a);
  memory.add({.target = {.handle = 7, .length = 4, .offset = 0x1000}});
  const std::byte bytes[4] = {};
  must(memory.place(7, 0x1000, bytes).verdict == weft::capture::SegmentTable::Verdict::placed,
       "the bytes have a place");
  must(memory.find(7)->complete(), "the chunk is whole");
}

void verbs() {
  for (const auto& device : weft::verbs::devices(weft::verbs::Backend::embedded)) {
    std::printf("%s of weft %s\n", device.name().c_str(), std::string(weft::version()).c_str());
  }
}

void connection() {
  using namespace weft::connection;
  const Options options{.advertisements = true};
  Listener listener({"127.0.0.1", 0}, options);
  const std::jthread other([&] {
    auto connection = connect({"127.0.0.1", listener.port()}, 10s, options);
    const auto buffer = connection.allocate(8, Access::remote_write);
    connection.advertise(buffer.remote());
    (void)connection.await_disconnect(10s);
    std::printf("connection: %d\n", std::to_integer<int>(buffer.bytes()[7]));
  });
  auto connection = listener.accept(10s);
  const auto told = connection.await_advertisement(10s);
  must(told.has_value(), "nothing was advertised");
  const auto bytes = connection.allocate(8);
  bytes.bytes()[7] = std::byte{42};
  must(connection.post_write(bytes.slice(), told->buffer, 0, 1) == 0, "cannot write");
  must(connection.await(Queue::send, 1, 10s).at(0).ok(), "not written");
  connection.disconnect();
}

void message() {
  using namespace weft::message;
  EventLoop loop;
  auto listener = loop.listen({"127.0.0.1", 0}, [](Request request) {
    request.accept({.message = [](Connection& peer, Received& got) { peer.send(got.bytes()); }});
  });
  auto connection = loop.connect({"127.0.0.1", listener.port()},
                                 {.established = [](Connection& peer) { peer.send("echo"); },
                                  .message =
                                      [&loop](Connection&, Received& got) {
                                        std::printf("message: %zu bytes\n", got.bytes().size());
                                        loop.stop();
                                      }});
  loop.run();
}

void stream() {
  using namespace weft::stream;
  Listener listener({"127.0.0.1", 0});
  listener.listen();
  Stream here;
  here.start_connecting({"127.0.0.1", listener.port()});
  auto there = listener.accept(10s);
  must(here.await_connected(10s), "not connected");
  const std::array<std::byte, 3> bytes{};
  must(here.send(bytes, 10s).ok(), "not sent");
  std::array<std::byte, 3> room{};
  const auto got = there.receive(room, 10s, {.wait_all = true});
  std::printf("stream: %zu bytes\n", got.bytes);
}

}  // namespace

int main() {
  try {
    capture();
    verbs();
    connection();
    message();
    stream();
    return 0;
  } catch (const std::exception& error) {
    std::printf("failed: %s\n", error.what());
    return 1;
  }
}
