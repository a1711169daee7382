// What looks at the requests of a queue pair, or lets them fail: rules of faults, the trace of the
// device, and the latencies of `weft top`.
//
// A queue pair that nothing of this is asked for has none. Its data path asks for this one pointer
// where a call posts, where a message has arrived and where completions become visible; everything
// behind that is out of line. What happens to a TCP connection besides is the matter of
// ObservedStreamCarrier, which takes the place of StreamCarrier there.
#pragma once

#include <memory>

#include "device/faults/device_faults.h"
#include "device/queue_pair/late_completions.h"
#include "device/trace/request_watch.h"

namespace weft::device {

// The queue pair's lock covers it.
struct Observation {
  DeviceFaults* faults = nullptr;         // null: the device has no rules
  std::unique_ptr<LateCompletions> late;  // null: no rule names completions
  RequestWatch watch;

  [[nodiscard]] bool needed() const { return faults || watch.has_trace() || watch.latencies(); }
};

}  // namespace weft::device
