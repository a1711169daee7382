// The payload of RDMAP Terminate messages.
#include "fuzz/fuzz.h"
#include "wire/terminate.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const auto terminate = wire::Terminate::parse(fuzz::input_bytes(data, size));
  if (!terminate) return 0;
  fuzz::require(terminate->size() <= size);
  fuzz::require(terminate->size() <= wire::Terminate::max_bytes);
  fuzz::require(!wire::describe(terminate->code).empty());
  fuzz::require_stable(*terminate, terminate->size());
  return 0;
}
