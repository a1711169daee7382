// Copies a file: "file_copy serve FILE" receives it, "file_copy HOST PORT FILE" sends it, with a
// progress bar. The receiver advertises a buffer of the file's size; the sender fills it by RDMA
// writes, several of them in flight at a time, and finally sends a checksum, which the receiver
// compares.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <weft/connection.hpp>

namespace {

using namespace std::chrono_literals;
using namespace weft::connection;  // NOLINT(google-build-using-namespace)

constexpr std::size_t piece_bytes = 256 * 1024;
constexpr std::size_t most_under_way = 8;

// Enables advertisements in both directions.
Options options() {
  return {.advertisements = true};
}

std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<unsigned>(byte)) * 1099511628211U;
  return hash;
}

void show_progress(std::size_t done, std::size_t all) {
  constexpr std::size_t width = 40;
  const std::size_t filled = all == 0 ? width : done * width / all;
  std::fprintf(stderr, "\r[%-*.*s] %3zu %%", static_cast<int>(width), static_cast<int>(filled),
               "########################################", all == 0 ? 100 : done * 100 / all);
  if (done == all) std::fputc('\n', stderr);
}

Outcome next(Connection& peer, Queue queue) {
  const auto outcomes = peer.await(queue, 1, 60s);
  if (outcomes.empty() || !outcomes[0].ok()) throw std::runtime_error("the transfer has failed");
  return outcomes[0];
}

void serve(const char* name) {
  Listener listener({"", 0}, options());
  std::printf("port %u\n", listener.port());
  std::fflush(stdout);
  auto request = listener.next(60s);
  if (!request) throw std::runtime_error("no peer has connected");
  std::uint64_t announced = 0;  // from the request's private data, in host byte order
  if (request->private_data().size() < sizeof announced)
    throw std::runtime_error("the request contains no size");
  std::memcpy(&announced, request->private_data().data(), sizeof announced);
  const auto size = static_cast<std::size_t>(announced);
  const auto content = request->allocate(std::max<std::size_t>(size, 1), Access::remote_write);
  const auto sum = request->allocate(sizeof(std::uint64_t));
  (void)request->post_receive(sum.slice(), 1);  // before accepting, so that the send finds it
  auto peer = std::move(*request).accept({.buffer = content.remote()}, 10s);
  next(peer, Queue::receive);
  std::uint64_t expected = 0;
  std::memcpy(&expected, sum.bytes().data(), sizeof expected);
  const auto bytes = content.bytes().first(size);
  if (checksum(bytes) != expected) throw std::runtime_error("the checksum is wrong");
  std::ofstream file(name, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file.flush()) throw std::runtime_error("the file cannot be written");
  std::printf("%zu bytes, verified\n", size);
}

void send(const char* host, std::uint16_t port, const char* name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) throw std::runtime_error("the file cannot be read");
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t size = text.size();
  const std::uint64_t announced = size;
  auto peer = connect({host, port}, 10s, options(),
                      {.private_data = std::as_bytes(std::span(&announced, 1))});
  const auto remote = peer.await_advertisement(10s);
  if (!remote) throw std::runtime_error("the receiver has advertised no memory");
  const auto content = peer.allocate(std::max<std::size_t>(size, 1));
  std::ranges::copy(std::as_bytes(std::span(text)), content.bytes().begin());

  std::size_t posted = 0;
  std::size_t done = 0;
  std::size_t under_way = 0;
  while (done < size) {
    while (posted < size && under_way < most_under_way) {
      const std::size_t part = std::min(piece_bytes, size - posted);
      // The id is the number of bytes that are written when this request completes.
      if (peer.post_write(content.slice(posted, part), remote->buffer, posted, posted + part) !=
          0) {
        throw std::runtime_error("cannot post a write");
      }
      posted += part;
      ++under_way;
    }
    done = static_cast<std::size_t>(next(peer, Queue::send).id);
    --under_way;
    show_progress(done, size);
  }
  const auto sum = peer.domain().allocate<std::uint64_t>(1);
  sum[0] = checksum(content.bytes().first(size));
  if (peer.post_send(sum.slice(), 0) != 0) throw std::runtime_error("cannot post the checksum");
  next(peer, Queue::send);
  (void)peer.await_disconnect(60s);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count == 3 && std::string_view(arguments[1]) == "serve") {
      serve(arguments[2]);
    } else if (count == 4) {
      send(arguments[1], static_cast<std::uint16_t>(std::atoi(arguments[2])), arguments[3]);
    } else {
      std::fprintf(stderr, "file_copy serve FILE | file_copy HOST PORT FILE\n");
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "file_copy: %s\n", error.what());
    return 1;
  }
}
