// Where datagrams go: ibv_create_ah(3).
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <optional>

#include "weft/export.hpp"
#include "weft/verbs/gid.hpp"

namespace weft::verbs {

namespace detail {
struct AddressHandleState;
}

// What ibv_create_ah(3) wants to know.
struct AddressOptions {
  std::optional<Gid> gid;      // the destination's; needed on Ethernet
  std::uint8_t gid_index = 0;  // of ours
  std::uint8_t hop_limit = 0xFF;
  std::uint8_t traffic_class = 0;
  std::uint16_t lid = 0;  // the destination's, on InfiniBand
  std::uint8_t service_level = 0;
  std::uint8_t port = 1;
};

// A datagram's receive has so much in front of the message.
inline constexpr std::size_t grh_bytes = 40;

// Thread-safe. Keeps its domain. Must live until the requests that go there have completed.
class AddressHandle {
 public:
  AddressHandle(AddressHandle&&) noexcept = default;
  AddressHandle& operator=(AddressHandle&&) noexcept = default;
  [[nodiscard]] ibv_ah* raw() const { return raw_; }

 private:
  friend class ProtectionDomain;
  explicit AddressHandle(std::shared_ptr<detail::AddressHandleState> state);

  std::shared_ptr<detail::AddressHandleState> state_;
  ibv_ah* raw_;
};

// For ibv_modify_qp(3) and ibv_create_ah(3).
[[nodiscard]] WEFT_API ibv_ah_attr to_attributes(const AddressOptions& options);

}  // namespace weft::verbs
