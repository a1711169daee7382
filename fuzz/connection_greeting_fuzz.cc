// The private data of two sides that advertise buffers to each other, and of those that do not.
#include <algorithm>

#include "connection/control_wire.h"
#include "connection/greeting_wire.h"
#include "connection/private_data_wire.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  using namespace weft::connection::detail;
  const auto input = fuzz::input_bytes(data, size);
  for (const auto message : {CarriedBy::request, CarriedBy::acceptance, CarriedBy::rejection}) {
    const auto user = without_padding(input, message);
    fuzz::require(user.size() <= input.size());
    if (user.size() == input.size()) continue;
    const auto sent = with_length(user, message);
    fuzz::require(user.empty() || std::ranges::equal(sent, input));
  }
  const auto greeting = ControlGreeting::parse(input);
  if (!greeting) return 0;
  fuzz::require(greeting->slots > 0);
  fuzz::require(greeting->control.size_bytes() == ControlLayout::bytes(greeting->slots));
  const auto bytes = greeting->to_bytes();
  fuzz::require(bytes.size() <= size);
  fuzz::require(ControlGreeting::parse(bytes) == greeting);
  return 0;
}
