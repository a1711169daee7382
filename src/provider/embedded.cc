#include "provider/embedded.h"

#include "provider/embedded_parts.h"
#include "provider/traced_calls.h"

namespace weft::provider {

const Table& embedded() {
  // Made at the first use, so that the table is complete even for a call from a constructor of
  // another library.
  static const Table table = [] {
    Table made{};
    parts::devices(made);
    parts::events(made);
    parts::memory(made);
    parts::imports(made);
    parts::queues(made);
    parts::queue_pairs(made);
    parts::addressing(made);
    parts::connections(made);
    parts::counters(made);
    parts::captures(made);
    trace_calls(made);
    return made;
  }();
  return table;
}

}  // namespace weft::provider
