// Address handles, ibv_create_ah(3): the destinations of datagrams.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <optional>

#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/gid.hpp"

namespace weft::verbs {

namespace detail {
struct AddressHandleState;
}

// The attributes of ibv_create_ah(3).
struct AddressOptions {
  std::optional<Gid> gid{};    // of the destination; required on Ethernet
  std::uint8_t gid_index = 0;  // row of the local port's GID table
  std::uint8_t hop_limit = 0xFF;
  std::uint8_t traffic_class = 0;
  std::uint16_t lid = 0;  // of the destination, on InfiniBand
  std::uint8_t service_level = 0;
  std::uint8_t port = 1;
};

// Size of the Global Route Header, in bytes. A receive of a datagram has room for it before the
// message.
inline constexpr std::size_t grh_bytes = 40;

// Thread-safe. Keeps its protection domain alive. Must live until the requests that were posted
// with it have completed.
class AddressHandle {
 public:
  AddressHandle(AddressHandle&&) noexcept = default;
  AddressHandle& operator=(AddressHandle&&) noexcept = default;
  // The object of verbs. Belongs to this one.
  [[nodiscard]] ibv_ah* raw() const { return raw_; }

 private:
  friend class ProtectionDomain;
  explicit AddressHandle(std::shared_ptr<detail::AddressHandleState> state);

  weft::detail::Held<std::shared_ptr<detail::AddressHandleState>, "weft::verbs::AddressHandle">
      state_;
  weft::detail::Held<ibv_ah*, "weft::verbs::AddressHandle"> raw_;
};

// Converts to the form that ibv_modify_qp(3) and ibv_create_ah(3) take.
[[nodiscard]] WEFT_API ibv_ah_attr to_attributes(const AddressOptions& options);

}  // namespace weft::verbs
