// Slices: parts of local registered memory for work requests, and parts of the peer's memory.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weft/export.hpp"

namespace weft::verbs {

// A part of a local memory region, as work requests take it. A value: it does not keep the region
// alive. The region must live until every request that was posted with the slice has completed.
class LocalSlice {
 public:
  // No bytes: for messages without content.
  LocalSlice() = default;
  // These bytes, in the region that has this lkey.
  LocalSlice(std::uint64_t address, std::uint32_t bytes, std::uint32_t lkey)
      : sge_{address, bytes, lkey} {}

  // The address of the first byte, as work requests have it.
  [[nodiscard]] std::uint64_t address() const { return sge_.addr; }
  // The number of bytes.
  [[nodiscard]] std::uint32_t size_bytes() const { return sge_.length; }
  // The local key of the region.
  [[nodiscard]] std::uint32_t lkey() const { return sge_.lkey; }
  // Throws std::out_of_range if the part is not within this slice.
  [[nodiscard]] WEFT_API LocalSlice slice(std::size_t offset_bytes, std::size_t bytes) const;
  // The same as a scatter/gather element of verbs.
  [[nodiscard]] const ibv_sge& raw() const { return sge_; }

 private:
  ibv_sge sge_{};
};

static_assert(sizeof(LocalSlice) == sizeof(ibv_sge), "spans of slices are lists of ibv_sge");

// A part of the peer's memory that this side may access: address, length and rkey, as received from
// the peer.
class RemoteSlice {
 public:
  static constexpr std::size_t encoded_bytes = 20;

  // No bytes, with the rkey 0.
  RemoteSlice() = default;
  // These bytes of the peer, in the region or window that has this rkey.
  RemoteSlice(std::uint64_t address, std::uint64_t bytes, std::uint32_t rkey)
      : address_(address), bytes_(bytes), rkey_(rkey) {}

  // The address of the first byte, as the peer counts.
  [[nodiscard]] std::uint64_t address() const { return address_; }
  // The number of bytes.
  [[nodiscard]] std::uint64_t size_bytes() const { return bytes_; }
  // The remote key, by which the peer's device finds the memory and its rights.
  [[nodiscard]] std::uint32_t rkey() const { return rkey_; }
  // Throws std::out_of_range if the part is not within this slice.
  [[nodiscard]] WEFT_API RemoteSlice slice(std::uint64_t offset_bytes, std::uint64_t bytes) const;

  // Address, length and rkey in network byte order, 8 + 8 + 4 bytes.
  [[nodiscard]] WEFT_API std::array<std::byte, encoded_bytes> to_bytes() const;
  // Nothing unless there are exactly encoded_bytes bytes.
  [[nodiscard]] WEFT_API static std::optional<RemoteSlice> from_bytes(
      std::span<const std::byte> bytes);
  // "address:length:rkey" in hexadecimal digits without prefix.
  [[nodiscard]] WEFT_API std::string to_string() const;
  // Reads what to_string() writes; nothing for any other text.
  [[nodiscard]] WEFT_API static std::optional<RemoteSlice> parse(std::string_view text);
  friend bool operator==(const RemoteSlice&, const RemoteSlice&) = default;

 private:
  std::uint64_t address_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint32_t rkey_ = 0;
};

}  // namespace weft::verbs
