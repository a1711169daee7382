// Captures that carry RPCs: from scripts, and what an RpcTracker makes of them.
#pragma once

#include "capture/made_capture.h"
#include "capture/rpc_log.h"

namespace weft::capture::test {

// What an RpcTracker makes of a capture.
inline RpcLog followed(const MadeCapture& capture) {
  RpcLog log;
  RpcTracker tracker(log);
  analyse(capture, &tracker);
  tracker.finish();
  return log;
}

// Every event of the script as an FPDU, or as a packet of RoCE; in the script's time.
[[nodiscard]] MadeCapture iwarp_capture(const TrafficScript& script);
[[nodiscard]] MadeCapture roce_capture(const TrafficScript& script);

}  // namespace weft::capture::test
