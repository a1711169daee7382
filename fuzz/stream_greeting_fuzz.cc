// The private data of a stream.
#include "fuzz/fuzz.h"
#include "stream/greeting_wire.h"
#include "stream/ring_map_wire.h"

namespace weft::fuzz {
namespace {

using stream::detail::GreetingType;
using stream::detail::StreamGreeting;

// The ring and its table are written to as they are: they must not wrap around.
void check_region(const StreamGreeting& greeting) {
  const auto bytes = stream::detail::region_bytes(greeting.ring_bytes, greeting.rows);
  require(greeting.ring_bytes > 0);
  require(greeting.ring_address + bytes > greeting.ring_address);
}

void check_round_trip(const StreamGreeting& greeting, Bytes input) {
  const auto bytes = greeting.to_bytes();
  require(bytes.size() <= input.size());
  const auto again = StreamGreeting::parse(bytes);
  require(std::holds_alternative<StreamGreeting>(again));
  require(std::get<StreamGreeting>(again) == greeting);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const auto input = fuzz::input_bytes(data, size);
  const auto parsed = fuzz::StreamGreeting::parse(input);
  if (const auto* greeting = std::get_if<fuzz::StreamGreeting>(&parsed)) {
    if (greeting->type != fuzz::GreetingType::refusal) fuzz::check_region(*greeting);
    fuzz::check_round_trip(*greeting, input);
  }
  return 0;
}
