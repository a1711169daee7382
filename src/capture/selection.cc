#include "capture/report.h"

namespace weft::capture {

bool Selection::takes(const Connection& candidate) const {
  if (connection && shown_number(candidate.id) != *connection) return false;
  if (!queue_pair) return true;
  return candidate.transport != Transport::iwarp &&
         (candidate.a.number == *queue_pair || candidate.b.number == *queue_pair);
}

bool Selection::takes(const Operation& operation, const Analysis& analysis) const {
  if (kind && operation.kind != *kind) return false;
  if (key && operation.key != *key && operation.invalidated_key != *key) return false;
  const std::int64_t since_ns = operation.start.time_ns - analysis.totals().first_ns;
  if (from_ns && since_ns < *from_ns) return false;
  if (to_ns && since_ns > *to_ns) return false;
  if (!connection && !queue_pair) return true;
  return takes(analysis.connections()[operation.connection]);
}

}  // namespace weft::capture
