// A program of the C++ library for hostile peers: one server of each layer, and endpoints from
// standard input.
//
//   hostile_layers_target HOST
//
// Prints "ports CONNECTION MESSAGE STREAM". For each line of standard input it prints one line:
//   look           how many conversations of each layer are open, descriptors and threads
//   endpoint TEXT  whether a queue pair could be connected to that endpoint
#include <dirent.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "weft/connection.hpp"
#include "weft/message.hpp"
#include "weft/stream.hpp"
#include "weft/verbs.hpp"

namespace {

using namespace std::chrono_literals;

// A peer that stays connected and silent is given up after this time.
constexpr std::chrono::seconds timeout{20};

int entries(const char* directory) {
  DIR* open = ::opendir(directory);
  int count = 0;
  while (const dirent* entry = ::readdir(open)) count += entry->d_name[0] != '.';
  ::closedir(open);
  return count;
}

std::atomic<int> open_connections{0};
std::atomic<int> open_messages{0};
std::atomic<int> open_streams{0};

// Runs one conversation in a thread of its own, so that a silent peer delays no other one.
template <typename Work>
void converse(std::atomic<int>& open, Work work) {
  ++open;
  std::thread([&open, work = std::move(work)]() mutable {
    try {
      work();
    } catch (const std::exception&) {
      // The peer has broken a rule, or has left.
    }
    --open;
  }).detach();
}

// Reads from each buffer that the peer advertises, writes to it, and advertises its own in return.
void serve_connection(weft::connection::Request request) {
  using weft::connection::Queue;
  const auto memory = request.allocate(4096, weft::connection::Access::remote_write);
  (void)request.post_receive(memory.slice(0, 256), 1);
  auto peer = std::move(request).accept({.buffer = memory.remote()}, timeout);
  while (const auto advertised = peer.await_advertisement(timeout)) {
    const auto bytes = std::min<std::uint64_t>(advertised->buffer.size_bytes(), 64);
    (void)peer.post_read(memory.slice(1024, bytes), advertised->buffer, 0, 2);
    (void)peer.post_write(memory.slice(2048, bytes), advertised->buffer, 0, 3);
    peer.advertise(memory.remote(), advertised->tag);
    (void)peer.await(Queue::send, 2, timeout);
  }
}

void serve_connections(weft::connection::Listener& listener) {
  while (true) {
    auto request = listener.next(weft::Deadline::never());
    if (!request) continue;
    converse(open_connections,
             [request = std::move(*request)]() mutable { serve_connection(std::move(request)); });
  }
}

// Sends back what it receives.
void serve_stream(weft::stream::Stream stream) {
  std::vector<std::byte> some(10'000);
  while (true) {
    const auto got = stream.receive(some, timeout);
    if (!got.ok() || !stream.send(std::span(some).first(got.bytes), timeout).ok()) return;
  }
}

void serve_streams(weft::stream::Listener& listener) {
  while (true) {
    auto request = listener.next(weft::Deadline::never());
    if (!request) continue;
    converse(open_streams, [request = std::move(*request)]() mutable {
      serve_stream(std::move(request).accept());
    });
  }
}

void accept_messages(weft::message::Request request) {
  weft::message::Handlers handlers;
  handlers.established = [](weft::message::Connection&) { ++open_messages; };
  handlers.message = [](weft::message::Connection& from, weft::message::Received& got) {
    from.send(got.bytes(), {.type = got.type(), .tag = got.tag(), .confirm = true});
  };
  handlers.disconnected = [](weft::message::Connection&, const weft::message::Ending&) {
    --open_messages;
  };
  request.accept(std::move(handlers));
}

// The other end of the queue pair does not exist.
const char* connect_to(const std::string& text) {
  const auto endpoint = weft::verbs::Endpoint::parse(text);
  if (!endpoint) return "malformed";
  try {
    const auto context = weft::verbs::open_device();
    const auto domain = context.create_domain();
    const auto queue = context.create_completion_queue(4);
    const auto connected = domain.queue_pair(queue, queue).build().handshake(*endpoint);
    return connected.number() != 0 ? "connected" : "nothing";
  } catch (const weft::Error&) {
    return "refused";
  }
}

void answer(const std::string& line) {
  if (line.starts_with("endpoint ")) {
    std::printf("endpoint %s\n", connect_to(line.substr(9)));
  } else {
    std::printf("open %d %d %d descriptors %d threads %d\n", open_connections.load(),
                open_messages.load(), open_streams.load(), entries("/proc/self/fd") - 1,
                entries("/proc/self/task"));
  }
  std::fflush(stdout);
}

void run(const std::string& host) {
  weft::connection::Listener connections({host, 0}, {.advertisements = true});
  weft::stream::Listener streams({host, 0});
  streams.listen();
  weft::message::EventLoop loop;
  const auto messages = loop.listen({host, 0}, accept_messages);
  std::printf("ports %u %u %u\n", connections.port(), messages.port(), streams.port());
  std::fflush(stdout);
  std::thread([&] { serve_connections(connections); }).detach();
  std::thread([&] { serve_streams(streams); }).detach();
  std::thread([&] { loop.run(); }).detach();
  std::string line;
  while (std::getline(std::cin, line)) answer(line);
  std::quick_exit(0);  // the threads use the listeners
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: hostile_layers_target HOST\n");
    return 2;
  }
  try {
    run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hostile_layers_target: %s\n", error.what());
    return 1;
  }
}
