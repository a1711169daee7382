// The accesses of posted requests to memory of peers, and the memory of this process that posted
// Reads and atomics will fill: to find requests that need an order which nothing gives them.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "check/memory_range.h"
#include "check/range_index.h"
#include "check/stacks.h"

namespace weft::check {

// The device to which a queue pair is connected: its GID and LID.
struct PeerDevice {
  std::array<std::uint8_t, 16> gid{};
  std::uint16_t lid = 0;

  [[nodiscard]] auto operator<=>(const PeerDevice&) const = default;
};

// One posted request. Without bytes of a peer it accesses none.
struct Access {
  const ibv_qp* queue_pair = nullptr;
  std::uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  StackId posted = 0;
  PeerDevice peer{};
  std::uint32_t rkey = 0;
  MemoryRange remote{};
  MemoryRanges fills{};  // bytes of this process
};

// From the post of a request until the poll that retires it. Not thread-safe.
class Accesses {
 public:
  // Returns the number by which it is removed; 0 if there is nothing to note.
  [[nodiscard]] std::uint64_t add(Access access);
  void remove(std::uint64_t number);
  // Of another queue pair, to the same bytes of the same peer, if one of both changes them and the
  // other is not an atomic as well. Its order to the given one is not defined.
  [[nodiscard]] std::optional<Access> find_unordered(const Access& access) const;
  // The peer has answered a later request, so that the data of a Write are in its memory.
  void note_placed(std::uint64_t number);
  // A Read or atomic that will fill some of the bytes of this process. Those of a queue pair with a
  // number up to `fenced` are left out.
  [[nodiscard]] std::optional<Access> find_filling(const MemoryRanges& ranges,
                                                   const ibv_qp* queue_pair = nullptr,
                                                   std::uint64_t fenced = 0) const;
  // The number of the latest one.
  [[nodiscard]] std::uint64_t latest() const { return latest_; }

 private:
  void remove_remote(const Access& access, std::uint64_t number);

  std::unordered_map<std::uint64_t, Access> by_number_;
  std::map<std::pair<PeerDevice, std::uint32_t>, RangeIndex> remote_;  // by peer and rkey
  RangeIndex filled_;
  std::uint64_t latest_ = 0;
};

}  // namespace weft::check
