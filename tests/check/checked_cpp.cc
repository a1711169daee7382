// A program of the C++ library that changes the memory of a Send too early (bad), or just behind it
// (near), with checks that it asks for in code, or that the environment has.
//
//   checked_cpp environment|configure|own|off|wrong bad|near
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <weft/device_options.hpp>
#include <weft/verbs.hpp>

namespace {

using namespace weft;

// Objects that are destroyed behind the exit handlers are no leak.
struct Late {
  std::optional<verbs::Context> context;
};
Late late;

verbs::Context open(std::string_view how) {
  if (how == "configure") configure({.check = "1"});
  if (how == "off") configure({});
  if (how == "wrong") configure({.check = "often"});
  return how == "own" ? verbs::open_own_device({.check = "1"}) : verbs::open_device();
}

void change_send(const verbs::Context& context, bool bad) {
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(2);
  const auto region = domain.allocate<char>(64);
  auto prepared = domain.queue_pair(queue, queue).build();
  const auto endpoint = prepared.endpoint();
  const auto queue_pair = std::move(prepared).handshake(endpoint);
  if (queue_pair.post_receive(region.slice(0, 16), /*id=*/1) != 0 ||
      queue_pair.post_send(region.slice(32, 16), /*id=*/2) != 0) {
    throw std::runtime_error("cannot post");
  }
  region[bad ? 47 : 48] = 'x';
  std::array<verbs::Completion, 2> done;
  for (std::size_t seen = 0; seen < done.size();) {
    const auto some = queue.wait(std::span(done).subspan(seen), std::chrono::seconds(30));
    if (some.empty()) throw std::runtime_error("no completion");
    seen += some.size();
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  try {
    late.context = open(words[1]);
    change_send(*late.context, std::string_view(words[2]) == "bad");
    configure({.check = "1"});
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
  std::printf("end\n");
  return 0;
}
