// All segment tables of a trace. Both sides of a connection hand out handles of their own, so a
// table belongs to a side of a connection; equal handles, PSNs or STags of others never meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "weft/bytes.hpp"
#include "weft/capture/segment_table.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

class Reassembly {
 public:
  // Bytes of all messages that are open at a time. 256 MiB are 256 NFS requests of the largest
  // size.
  static constexpr std::uint64_t default_budget_bytes = 256U << 20;

  explicit Reassembly(std::uint64_t budget_bytes = default_budget_bytes) : budget_(budget_bytes) {}
  Reassembly(const Reassembly&) = delete;
  Reassembly& operator=(const Reassembly&) = delete;

  // The memory that `owner` has opened to its peer. Valid until reset() of the connection or of
  // all.
  [[nodiscard]] SegmentTable& memory_of(ConnectionId connection, Side owner) {
    return tables_.try_emplace({connection, owner}, budget_).first->second;
  }
  // Of all connections.
  [[nodiscard]] std::size_t size() const {
    std::size_t segments = 0;
    for (const auto& [key, table] : tables_) segments += table.size();
    return segments;
  }
  // Forgets all segments, and gives their bytes back to the budget.
  void reset() { tables_.clear(); }
  void reset(ConnectionId connection) {
    tables_.erase({connection, Side::a});
    tables_.erase({connection, Side::b});
  }
  // How many bytes the segments of all tables hold.
  [[nodiscard]] const Budget& budget() const { return budget_; }

 private:
  Budget budget_;
  std::map<std::pair<ConnectionId, Side>, SegmentTable> tables_;
};

}  // namespace weft::capture
