// Options of connections, and the data that is exchanged when one is established.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "weft/error.hpp"
#include "weft/export.hpp"
#include "weft/verbs.hpp"

namespace weft::connection {

using verbs::Access;
using verbs::Address;
using verbs::KeptSlice;
using verbs::LocalSlice;
using verbs::SendFlags;

// Local registered memory, and a buffer in the peer's memory.
using Buffer = verbs::TypedRegion<std::byte>;
using RemoteBuffer = verbs::RemoteSlice;

// Options of each connection: queue sizes, device, and whether it supports advertisements.
struct Options {
  std::uint32_t queue_depth = 64;  // sends, and receives, that may be posted at the same time
  std::uint32_t slices = 4;        // scatter/gather entries per request
  std::uint32_t inline_bytes = 0;  // largest request with SendFlags::copied
  // outstanding reads and atomics per direction; the smaller value of both sides applies
  std::uint8_t read_depth = 4;
  // Enables advertise() on both sides. The connect request asks for it; a peer that uses this
  // library agrees. Without it the connection uses plain rdma_cm and no private data of this
  // library.
  bool advertisements = false;
  // A domain to share with other connections of the same device; null: a domain of its own. On the
  // embedded device it may come from any context of the device; on the system's devices only from
  // ConnectionEnd::domain() of another connection, Prepared or Request.
  const verbs::ProtectionDomain* domain = nullptr;  // used during the call only
  // The embedded device of the connections, of open_own_device() for example, whose context is kept
  // open meanwhile; null: the one that the process shares. A listener accepts with its own device.
  const verbs::Context* device = nullptr;  // used during the call only
  verbs::Backend backend = verbs::default_backend();
};

// Data that is sent with a connect request or with its acceptance.
struct Greeting {
  std::span<const std::byte> private_data{};  // the user's; used during the call only
  std::optional<RemoteBuffer> buffer{};       // advertised with it; needs Options::advertisements
};

// The number of bytes of private data that a request or an acceptance can carry. More is EINVAL.
[[nodiscard]] WEFT_API std::size_t max_private_data_bytes(const Options& options,
                                                          bool with_buffer = false);

// The peer rejected the connection: error_number() is ECONNREFUSED.
class WEFT_API Rejected : public Error {
 public:
  // A sentence about the rejection, the private data that came with it, and what programs can
  // evaluate.
  Rejected(const std::string& what, std::vector<std::byte> private_data, ErrorDetail detail = {});
  // The private data that the peer's program has sent with the rejection.
  [[nodiscard]] const std::vector<std::byte>& private_data() const { return private_data_; }

 private:
  std::vector<std::byte> private_data_;
};

}  // namespace weft::connection
