// A program of the C++ library for a peer that does not use it: a weft::connection without
// advertisements. It sends a text as private data when it connects or accepts, and 16 bytes in each
// direction once it is connected, as rdma_client and rdma_server do.
//
//   connection_peer serve HOST PORT TEXT
//   connection_peer ask HOST PORT TEXT
//
// Prints what the peer has sent.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "weft/connection.hpp"

namespace {

using weft::connection::Buffer;
using weft::connection::Connection;
using weft::connection::Greeting;
using weft::connection::Outcome;
using weft::connection::Queue;

constexpr std::size_t message_bytes = 16;
constexpr std::chrono::seconds patience{30};

Greeting with(std::string_view text) {
  Greeting greeting;
  greeting.private_data = std::as_bytes(std::span(text));
  return greeting;
}

void show_private_data(std::span<const std::byte> came) {
  const int bytes = static_cast<int>(came.size());
  std::printf("private data of %d bytes: [%.*s]\n", bytes, bytes,
              reinterpret_cast<const char*>(came.data()));
}

void must(int failed, const char* what) {
  if (failed) throw std::system_error(failed, std::generic_category(), what);
}

void await_one(Connection& connection, Queue queue) {
  const auto got = connection.await(queue, 1, patience);
  if (got.size() != 1) throw std::runtime_error("no outcome");
  if (!got[0].ok()) throw std::runtime_error(std::string(got[0].status_name()));
}

void send_message(Connection& connection, const Buffer& buffer, std::string_view text) {
  std::memcpy(&buffer[message_bytes], text.data(), text.size());
  must(connection.post_send(buffer.slice(message_bytes, message_bytes), 2), "cannot send");
  await_one(connection, Queue::send);
}

void await_message(Connection& connection, const Buffer& buffer) {
  await_one(connection, Queue::receive);
  std::printf("message: %.16s\n", reinterpret_cast<const char*>(&buffer[0]));
}

void end(Connection& connection) {
  if (!connection.await_disconnect(patience)) throw std::runtime_error("it does not end");
}

void serve(const weft::connection::Address& address, std::string_view text) {
  weft::connection::Listener listener(address);
  auto request = listener.next(patience);
  if (!request) throw std::runtime_error("nobody connects");
  show_private_data(request->private_data());
  const Buffer buffer = request->allocate(2 * message_bytes);
  must(request->post_receive(buffer.slice(0, message_bytes), 1), "cannot post a receive");
  Connection connection = std::move(*request).accept(with(text), patience);
  await_message(connection, buffer);
  send_message(connection, buffer, "from a server");
  end(connection);
}

void ask(const weft::connection::Address& address, std::string_view text) {
  weft::connection::Prepared prepared(address, {}, patience);
  const Buffer buffer = prepared.allocate(2 * message_bytes);
  must(prepared.post_receive(buffer.slice(0, message_bytes), 1), "cannot post a receive");
  Connection connection = std::move(prepared).connect(with(text), patience);
  show_private_data(connection.peer_private_data());
  send_message(connection, buffer, "from a client");
  await_message(connection, buffer);
  connection.disconnect();
  end(connection);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: connection_peer serve|ask HOST PORT TEXT\n");
    return 2;
  }
  try {
    const weft::connection::Address address(argv[2],
                                            static_cast<std::uint16_t>(std::atoi(argv[3])));
    (std::string_view(argv[1]) == "serve" ? serve : ask)(address, argv[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "connection_peer: %s\n", error.what());
    return 1;
  }
  std::printf("end\n");
}
