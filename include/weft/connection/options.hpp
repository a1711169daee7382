// What a connection can be told when it is made.
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
using verbs::LocalSlice;
using verbs::SendFlags;

// Registered memory of ours, and memory of the peer's.
using Buffer = verbs::TypedRegion<std::byte>;
using RemoteBuffer = verbs::RemoteSlice;

// Of each connection: its depths, its device, and whether buffers can be advertised on it.
struct Options {
  std::uint32_t queue_depth = 64;  // sends, and receives, that may be posted at once
  std::uint32_t slices = 4;        // of one request
  std::uint32_t inline_bytes = 0;  // of one request with SendFlags::copied
  std::uint8_t read_depth = 4;  // reads and atomics under way, each way; the smaller of both holds
  // Lets each side tell the other of buffers. The request asks for it; the side that accepts agrees
  // if it is this library. Without it the connection is plain rdma_cm.
  bool advertisements = false;
  // Shared with other connections of the same device; null: one of its own.
  const verbs::ProtectionDomain* domain = nullptr;  // used during the call only
  verbs::Backend backend = verbs::default_backend();
};

// What goes along with a request to connect, or with its acceptance.
struct Greeting {
  std::span<const std::byte> private_data{};  // the user's; used during the call only
  std::optional<RemoteBuffer> buffer{};       // advertised at once; needs Options::advertisements
};

// How many bytes of private data a request or an acceptance may carry. More is EINVAL.
[[nodiscard]] WEFT_API std::size_t max_private_data_bytes(const Options& options,
                                                          bool with_buffer = false);

// The peer said no: error_number() is ECONNREFUSED.
class WEFT_API Rejected : public Error {
 public:
  Rejected(const std::string& what, std::vector<std::byte> private_data);
  [[nodiscard]] const std::vector<std::byte>& private_data() const { return private_data_; }

 private:
  std::vector<std::byte> private_data_;
};

}  // namespace weft::connection
