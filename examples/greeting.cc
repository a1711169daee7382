// A byte stream between two processes: the server sends a greeting, the client sends it back.
//
//   greeting serve [ADDRESS]
//   greeting ask HOST PORT
//
// With `plain` at the end the stream uses writes and sends, for adapters without immediate data.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <weft/stream.hpp>

namespace {

using namespace std::chrono_literals;
using namespace weft::stream;  // NOLINT(google-build-using-namespace)

constexpr std::string_view text = "hello stream!";

void say(Stream& stream, std::span<const std::byte> bytes) {
  if (!stream.send(bytes, 10s).ok()) throw std::runtime_error("cannot send");
}

std::string_view hear(Stream& stream, std::span<std::byte> into) {
  const auto heard = stream.receive(into, 10s, {.wait_all = true});
  if (!heard.ok()) throw std::runtime_error("the other side has gone");
  return {reinterpret_cast<const char*>(into.data()), heard.bytes};
}

void serve(const char* address, const Options& options) {
  Listener listener({address, 0}, options);
  listener.listen();
  std::printf("listening on port %u\n", listener.port());
  std::fflush(stdout);
  Stream stream = listener.accept(60s);
  say(stream, std::as_bytes(std::span(text)));
  std::array<std::byte, text.size()> room;
  if (hear(stream, room) != text) throw std::runtime_error("heard something else");
  std::printf("%s knows the greeting\n", stream.peer_address().c_str());
}

void ask(const char* host, const char* port, const Options& options) {
  Stream stream(options);
  stream.connect({host, static_cast<std::uint16_t>(std::atoi(port))}, 10s);
  std::array<std::byte, text.size()> room;
  const auto heard = hear(stream, room);
  std::printf("%.*s\n", static_cast<int>(heard.size()), heard.data());
  say(stream, room);
  if (!stream.receive(room, 10s).end()) throw std::runtime_error("there is more");
}

}  // namespace

int main(int count, char** words) {
  try {
    Options options;
    if (count > 2 && std::string_view(words[count - 1]) == "plain") {
      options.variant = Variant::write_and_send;
      --count;
    }
    const std::string_view what = count > 1 ? words[1] : "";
    if (what == "serve" && count <= 3) {
      serve(count == 3 ? words[2] : "", options);
    } else if (what == "ask" && count == 4) {
      ask(words[2], words[3], options);
    } else {
      std::fprintf(stderr, "usage: greeting serve [ADDRESS] | ask HOST PORT, then maybe: plain\n");
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "greeting: %s\n", error.what());
    return 1;
  }
}
