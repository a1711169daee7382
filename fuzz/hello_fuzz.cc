// The hello in the private data of MPA frames, and the control words to the STag that it names. The
// input is a hello; its first sixteen bytes are also the tagged offset and the payload of a control
// word.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "wire/control_word.h"
#include "wire/hello.h"

namespace weft::fuzz {
namespace {

void check_control_word(std::uint64_t tagged_offset, Bytes payload) {
  const auto value = wire::control_word_from_bytes(payload);
  require(std::ranges::equal(wire::control_word_to_bytes(value), payload));
  if (tagged_offset >= wire::control_region_bytes) return;
  const auto word = wire::control_word_at(tagged_offset);
  const auto offset = wire::control_word_offset(word);
  require(offset <= tagged_offset && tagged_offset - offset < wire::control_word_bytes);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const auto input = fuzz::input_bytes(data, size);
  if (const auto hello = wire::Hello::parse(input)) {
    fuzz::require_stable(*hello, wire::Hello::bytes);
  }
  constexpr std::size_t word = wire::control_word_bytes;
  if (size >= 2 * word) {
    fuzz::check_control_word(load_be<std::uint64_t>(input.data()), input.subspan(word, word));
  }
  return 0;
}
