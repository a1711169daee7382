// Staged connections: the kernel does not let one of the two processes reach the other's memory, so
// payload takes two copies, through memory that both map.
//
// What a message of the ring carries does so in every connection, and memory of files is mapped as
// in every connection. For all else the requester asks the peer's device (inbox::AccessRequest),
// which carries the request out with its own checks. Up to 12 KiB of a Write or a Send follow the
// request in the ring. Several of these may be under way, and each is over when the peer has taken
// it. So may several Reads of up to 16 KiB: each has a place in the staging area of the peer's
// inbox, where its data is when the peer has taken it. Longer payload is copied into that area, and
// what a longer Read wants is there with the answer.
//
// A longer request is the only one under way. It has several parts, and one part is asked for after
// the other. They use the two halves of the area in turn, so that each end copies one part while
// the other end copies the next.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/local/inbox.h"

namespace weft::device::staging {

// The largest part of a request.
inline constexpr std::uint32_t part_bytes = inbox::staging_bytes / 2;

// The part with that number, from 0, of a request of so many bytes.
[[nodiscard]] inline inbox::Part part_of(std::uint64_t length_bytes, std::uint64_t number) {
  const std::uint64_t offset = number * part_bytes;
  return {.offset = offset,
          .bytes = static_cast<std::uint32_t>(
              std::min<std::uint64_t>(length_bytes - offset, part_bytes)),
          .at = static_cast<std::uint32_t>(number % 2) * part_bytes};
}

// The places of short Reads.
inline constexpr std::uint32_t places = 16;
inline constexpr std::uint32_t place_bytes = inbox::staging_bytes / places;

// All of a Read of so many bytes, which has the place with that number modulo `places`.
[[nodiscard]] inline inbox::Part place_of(std::uint64_t length_bytes, std::uint64_t number) {
  return {.offset = 0,
          .bytes = static_cast<std::uint32_t>(length_bytes),
          .at = static_cast<std::uint32_t>(number % places) * place_bytes};
}

// Whether a part is within its request and within the area: the peer may have written anything.
[[nodiscard]] inline bool is_possible(const inbox::Part& part, std::uint64_t length_bytes) {
  return part.at <= inbox::staging_bytes && part.bytes <= inbox::staging_bytes - part.at &&
         part.offset <= length_bytes && part.bytes <= length_bytes - part.offset;
}

[[nodiscard]] inline bool is_last(const inbox::Part& part, std::uint64_t length_bytes) {
  return part.offset + part.bytes == length_bytes;
}

// Copy the bytes of a part: from the pieces of the whole request into `area`, and back. False:
// memory of the pieces cannot be accessed, or they are shorter. A program that watches the last
// byte of a piece finds all bytes before it when that arrives.
[[nodiscard]] bool gather(std::span<const iovec> pieces, const inbox::Part& part,
                          std::span<std::byte> area);
[[nodiscard]] bool scatter(std::span<const iovec> pieces, const inbox::Part& part,
                           std::span<const std::byte> area);
// How many bytes come before those that are stored last for that.
[[nodiscard]] inline std::size_t bytes_before_last_line(const void* at, std::size_t bytes) {
  const std::size_t last =
      (reinterpret_cast<std::uintptr_t>(at) + bytes - 1) % inbox::line_bytes + 1;
  return bytes > last ? bytes - last : 0;
}

}  // namespace weft::device::staging
