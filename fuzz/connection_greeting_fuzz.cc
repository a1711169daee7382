// The private data of two sides that advertise buffers to each other.
#include "connection/control_wire.h"
#include "connection/greeting_wire.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  using namespace weft::connection::detail;
  const auto greeting = ControlGreeting::parse(fuzz::input_bytes(data, size));
  if (!greeting) return 0;
  fuzz::require(greeting->slots > 0);
  fuzz::require(greeting->control.size_bytes() == ControlLayout::bytes(greeting->slots));
  const auto bytes = greeting->to_bytes();
  fuzz::require(bytes.size() <= size);
  fuzz::require(ControlGreeting::parse(bytes) == greeting);
  return 0;
}
