// Endpoints and remote slices, which programs exchange by any way they have: as bytes and as text.
#include <string_view>

#include "fuzz/fuzz.h"
#include "weft/verbs/endpoint.hpp"
#include "weft/verbs/slice.hpp"

namespace weft::fuzz {
namespace {

template <typename Value>
void check_bytes(Bytes input) {
  const auto value = Value::from_bytes(input);
  require(!value || input.size() == Value::encoded_bytes);
  if (value) require(Value::from_bytes(value->to_bytes()) == value);
}

template <typename Value>
void check_text(std::string_view input) {
  const auto value = Value::parse(input);
  if (!value) return;
  require(Value::parse(value->to_string()) == value);
  require(Value::from_bytes(value->to_bytes()) == value);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const auto input = fuzz::input_bytes(data, size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::check_bytes<verbs::Endpoint>(input);
  fuzz::check_bytes<verbs::RemoteSlice>(input);
  fuzz::check_text<verbs::Endpoint>(text);
  fuzz::check_text<verbs::RemoteSlice>(text);
  return 0;
}
