// The private data of a message connection: greetings and rejections.
#include "fuzz/fuzz.h"
#include "message/greeting_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  using namespace weft::message::detail;
  const auto input = fuzz::input_bytes(data, size);

  const auto parsed = MessageGreeting::parse(input);
  fuzz::require(parsed.greeting.has_value() == (parsed.reason == Reason::none));
  if (parsed.greeting) {
    const auto bytes = parsed.greeting->to_bytes();
    fuzz::require(bytes.size() <= size);
    fuzz::require(MessageGreeting::parse(bytes).greeting == parsed.greeting);
  }

  const auto rejection = Rejection::parse(input);
  if (rejection.reason != Reason::none) {
    const auto bytes = rejection.to_bytes();
    fuzz::require(bytes.size() <= size);
    fuzz::require(Rejection::parse(bytes) == rejection);
  }
  return 0;
}
