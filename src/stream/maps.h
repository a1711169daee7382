// Maps: the mapped buffers of one direction of a stream, as rows of a table. A stream has two: the
// buffers that this side has mapped for the peer, and those that the peer has mapped for this side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "stream/ring_map_wire.h"
#include "weft/verbs.hpp"

namespace weft::stream::detail {

struct Mapping {
  std::uint64_t offset = 0;   // by which the other side addresses the buffer
  verbs::RemoteSlice memory;  // of 0 bytes: the row maps nothing
  // The registration of a buffer of this side; null for a buffer of the peer.
  std::shared_ptr<verbs::TypedRegion<std::byte>> region;

  // The row to write to the peer's table, and the mapping of a row that the peer has written to
  // ours.
  [[nodiscard]] MapRow to_row() const { return {offset, memory}; }
  [[nodiscard]] static Mapping of(const MapRow& row) { return {row.offset, row.memory, nullptr}; }
};

// Not thread-safe: the stream's lock covers it.
class Maps {
 public:
  void resize(std::uint32_t rows) { rows_.resize(rows); }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(rows_.size()); }
  void set(std::uint32_t row, Mapping mapping) { rows_[row] = std::move(mapping); }

  // The first row that maps nothing.
  [[nodiscard]] std::optional<std::uint32_t> free_row() const;
  // The row that maps exactly this memory.
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint64_t address, std::uint64_t bytes) const;
  // Whether any of these offsets is in use.
  [[nodiscard]] bool overlaps(std::uint64_t offset, std::uint64_t bytes) const;
  // The first offset behind all that are in use.
  [[nodiscard]] std::uint64_t next_offset() const;
  // The memory at these offsets; nothing unless one mapping contains them all.
  [[nodiscard]] std::optional<verbs::RemoteSlice> at(std::uint64_t offset,
                                                     std::uint64_t bytes) const;

 private:
  std::vector<Mapping> rows_;
};

}  // namespace weft::stream::detail
