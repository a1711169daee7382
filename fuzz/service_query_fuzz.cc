// The datagrams that ask for the queue pair behind a port of rdma_cm's UDP space, and their
// replies.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "wire/service_query.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const auto input = fuzz::input_bytes(data, size);
  const auto query = wire::ServiceQuery::parse(input);
  if (!query) return 0;
  fuzz::require(query->size() <= size && query->size() <= wire::ServiceQuery::max_bytes);
  std::vector<std::byte> bytes(query->size());
  query->emit(bytes);
  std::vector<std::byte> expected(input.begin(), input.begin() + bytes.size());
  constexpr std::size_t reserved_at = 11;  // ignored, and written as zero
  expected[reserved_at] = std::byte{0};
  fuzz::require(bytes == expected);
  return 0;
}
