// All segment tables of a trace. Both sides of a connection assign handles independently, so a
// table belongs to one side of one connection; equal handles, PSNs or STags of other tables are
// unrelated.
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
  // Limit on the bytes of all open messages. 256 MiB are 256 NFS requests of the largest size.
  static constexpr std::uint64_t default_budget_bytes = 256U << 20;

  // Creates an object without tables. All tables together store at most `budget_bytes` bytes.
  // Further bytes are dropped, and their place is marked with Flaw::dropped.
  explicit Reassembly(std::uint64_t budget_bytes = default_budget_bytes) : budget_(budget_bytes) {}
  Reassembly(const Reassembly&) = delete;
  Reassembly& operator=(const Reassembly&) = delete;

  // Returns the table of the memory that `owner` has exposed to its peer. Valid until reset() of
  // the connection or of everything.
  [[nodiscard]] SegmentTable& memory_of(ConnectionId connection, Side owner) {
    return tables_.try_emplace({connection, owner}, budget_).first->second;
  }
  // Returns the number of segments of all connections.
  [[nodiscard]] std::size_t size() const {
    std::size_t segments = 0;
    for (const auto& [key, table] : tables_) segments += table.size();
    return segments;
  }
  // Removes all segments, and returns their bytes to the budget.
  void reset() { tables_.clear(); }
  void reset(ConnectionId connection) {
    tables_.erase({connection, Side::a});
    tables_.erase({connection, Side::b});
  }
  // The bytes that the segments of all tables hold.
  [[nodiscard]] const Budget& budget() const { return budget_; }

 private:
  Budget budget_;
  std::map<std::pair<ConnectionId, Side>, SegmentTable> tables_;
};

}  // namespace weft::capture
