#include "verbs/operation_pair.h"

#include "support/device.h"

namespace weft::verbs::testing {

OperationPair::OperationPair(int entries, std::uint32_t requests)
    : context(test::open_device()), domain(context.create_domain()) {
  a_operations.emplace(context, entries);
  b_operations.emplace(context, entries);
  const auto prepare = [&](Operations& operations) {
    auto builder = domain.queue_pair(operations.queue(), operations.queue());
    builder.access(Access::all).max_send_requests(requests).max_receive_requests(requests);
    builder.max_rd_atomic(4).max_dest_rd_atomic(4).rnr_retry(7).timeout(14);
    return builder.build();
  };
  auto first = prepare(*a_operations);
  auto second = prepare(*b_operations);
  const Endpoint endpoint_of_first = first.endpoint();
  const Endpoint endpoint_of_second = second.endpoint();
  a.emplace(std::move(first).handshake(endpoint_of_second));
  b.emplace(std::move(second).handshake(endpoint_of_first));
}

KeptSlice OperationPair::make(std::size_t count, Access access) const {
  return domain.allocate<std::byte>(count, access).keep();
}

KeptSlice OperationPair::make(std::size_t count, Watched& watched) const {
  const auto bytes = std::make_shared<std::vector<std::byte>>(count);
  watched = {bytes.get(), bytes};
  return domain.register_memory(*bytes, Access::all).keep().with(bytes);
}

std::byte* bytes_of(const KeptSlice& slice) {
  return reinterpret_cast<std::byte*>(slice.slice().address());
}

}  // namespace weft::verbs::testing
