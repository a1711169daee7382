// The other process of a test. It listens, prints its port, and handles one stream as its argument
// demands.
//
//   echo       sends back all bytes, until the end
//   echo COUNT the same for COUNT streams, one after the other
//   read BYTES reads BYTES bytes slowly, and prints how many of them were wrong
//   send BYTES receives one byte, sends BYTES bytes, prints "sent", and then does nothing
//   hold       prints "connected", and then does nothing
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "support/host.h"
#include "support/random.h"
#include "weft/stream.hpp"

namespace {

using namespace std::chrono_literals;
using weft::stream::Stream;

void echo(Stream& stream) {
  std::vector<std::byte> some(10'000);
  while (true) {
    const auto got = stream.receive(some);
    if (!got.ok() || !stream.send(std::span(some).first(got.bytes)).ok()) return;
  }
}

void read_slowly(Stream& stream, std::size_t total) {
  const auto expected = weft::test::pattern(total);
  std::vector<std::byte> some(30'000);
  std::size_t done = 0;
  std::size_t wrong = 0;
  for (int reads = 1; done < total; ++reads) {
    const auto got = stream.receive(some);
    if (!got.ok() || got.bytes > total - done) break;
    for (std::size_t i = 0; i < got.bytes; ++i) wrong += some[i] != expected[done + i];
    done += got.bytes;
    if (reads % 64 == 0) std::this_thread::sleep_for(200us);
  }
  std::printf("%zu read, %zu wrong\n", done, wrong);
}

[[noreturn]] void hold(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
  while (true) pause();
}

}  // namespace

int main(int count, char** words) {
  const std::string_view what = count > 1 ? words[1] : "";
  weft::stream::Options options;
  options.mapped_buffers = 1;
  weft::stream::Listener listener({weft::test::host(), 0}, options);
  listener.listen();
  std::printf("%u\n", listener.port());
  std::fflush(stdout);
  Stream stream = listener.accept(60s);
  if (what == "echo") echo(stream);
  for (unsigned long more = count > 2 && what == "echo" ? std::strtoul(words[2], nullptr, 10) : 1;
       more > 1; --more) {
    stream.close(60s);
    stream = listener.accept(60s);
    echo(stream);
  }
  if (what == "read" && count > 2) read_slowly(stream, std::strtoull(words[2], nullptr, 10));
  if (what == "send" && count > 2) {
    std::byte first{};
    (void)stream.receive(std::span(&first, 1));
    (void)stream.send(weft::test::pattern(std::strtoull(words[2], nullptr, 10)));
    hold("sent");
  }
  if (what == "hold") hold("connected");
  stream.close(60s);
}
