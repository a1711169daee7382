// RPC-over-RDMA version 1: RFC 8166, with the two message types that it made obsolete (RFC 5666).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "weft/wire/values.hpp"
#include "wire/error.h"
#include "wire/field.h"

namespace weft::wire {

inline constexpr std::uint32_t rpc_rdma_version = 1;

[[nodiscard]] const char* describe(RpcRdmaProcedure procedure);

// The header to be sent. It borrows the lists, which must live as long as the value is used.
struct RpcRdmaHeader {
  std::uint32_t xid = 0;
  std::uint32_t credits = 0;
  RpcRdmaProcedure procedure = RpcRdmaProcedure::msg;
  std::uint32_t align = 0;  // of msgp only
  std::uint32_t threshold = 0;
  RpcRdmaError error{};                  // of error only
  std::span<const ReadSegment> reads{};  // the lists: of msg, nomsg and msgp
  std::span<const std::span<const RdmaSegment>> writes{};
  std::optional<std::span<const RdmaSegment>> reply{};

  [[nodiscard]] std::size_t size() const;
  // Writes size() bytes.
  void emit(MutableBytes out) const;
};

// Each entry of a list follows a mark, a word with the value 1. A mark of 0 ends the list.
inline constexpr std::size_t list_mark_bytes = 4;

// A run of segments on the wire, each of `stride_bytes`, of which `skip_bytes` are not the
// segment's. Borrows the bytes, which were checked.
template <typename Segment, std::size_t stride_bytes, std::size_t skip_bytes>
class SegmentsView {
 public:
  SegmentsView() = default;
  explicit SegmentsView(Bytes bytes) : bytes_(bytes) {}

  [[nodiscard]] std::size_t size() const { return bytes_.size() / stride_bytes; }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  [[nodiscard]] Segment operator[](std::size_t index) const {
    return *Segment::parse(bytes_.subspan(index * stride_bytes + skip_bytes));
  }

 private:
  Bytes bytes_;
};

using ReadListView =
    SegmentsView<ReadSegment, list_mark_bytes + ReadSegment::header_bytes, list_mark_bytes>;
using ChunkView = SegmentsView<RdmaSegment, RdmaSegment::header_bytes, 0>;

// The write list: a run of chunks, each with a mark and its number of segments in front. Borrows
// the bytes, which were checked.
class WriteListView {
 public:
  class Iterator {
   public:
    explicit Iterator(Bytes rest) : rest_(rest) {}
    [[nodiscard]] ChunkView operator*() const {
      return ChunkView(rest_.subspan(count.end(), chunk_bytes()));
    }
    Iterator& operator++() {
      rest_ = rest_.subspan(count.end() + chunk_bytes());
      return *this;
    }
    bool operator==(const Iterator& other) const { return rest_.size() == other.rest_.size(); }

   private:
    [[nodiscard]] std::size_t chunk_bytes() const {
      return count.load(rest_.data()) * RdmaSegment::header_bytes;
    }
    static constexpr Field32 count{list_mark_bytes};
    Bytes rest_;
  };

  WriteListView() = default;
  WriteListView(Bytes bytes, std::size_t count) : bytes_(bytes), count_(count) {}

  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] Iterator begin() const { return Iterator(bytes_); }
  [[nodiscard]] Iterator end() const { return Iterator(bytes_.last(0)); }

 private:
  Bytes bytes_;
  std::size_t count_ = 0;
};

// A whole header and what follows it. Borrows the bytes.
class RpcRdmaView {
 public:
  // Fails with bad_version unless the version is 1, with bad_value if a discriminator or the
  // procedure has a value that RFC 8166 §4 does not define, with truncated if a list goes on beyond
  // the bytes. Does not check what the segments name.
  [[nodiscard]] static Result<RpcRdmaView, WireError> check(Bytes bytes);

  [[nodiscard]] std::uint32_t xid() const { return xid_; }
  [[nodiscard]] std::uint32_t credits() const { return credits_; }
  [[nodiscard]] RpcRdmaProcedure procedure() const { return procedure_; }
  [[nodiscard]] std::uint32_t align() const { return align_; }
  [[nodiscard]] std::uint32_t threshold() const { return threshold_; }
  [[nodiscard]] const RpcRdmaError& error() const { return error_; }
  [[nodiscard]] const ReadListView& reads() const { return reads_; }
  [[nodiscard]] const WriteListView& writes() const { return writes_; }
  [[nodiscard]] const std::optional<ChunkView>& reply() const { return reply_; }

  // The size of the header, and the bytes behind it.
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] Bytes body() const { return body_; }

 private:
  RpcRdmaView() = default;

  std::uint32_t xid_ = 0;
  std::uint32_t credits_ = 0;
  RpcRdmaProcedure procedure_ = RpcRdmaProcedure::msg;
  std::uint32_t align_ = 0;
  std::uint32_t threshold_ = 0;
  RpcRdmaError error_;
  ReadListView reads_;
  WriteListView writes_;
  std::optional<ChunkView> reply_;
  std::size_t size_ = 0;
  Bytes body_;

  friend struct RpcRdmaParser;
};

}  // namespace weft::wire
