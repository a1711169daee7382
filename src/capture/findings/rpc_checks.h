// The rules that RPC-over-RDMA headers and chunk lists must keep, each a finding where it is
// broken.
#pragma once

#include <cstddef>

#include "capture/findings/rpc_findings.h"
#include "capture/rpc/rpc_exchange.h"
#include "weft/capture/segment_table.hpp"

namespace weft::capture {

// A header that has just been seen, in a message whose inline part is `inline_bytes` long. `memory`
// does not have the segments of the call yet.
void check_header(FindingReport& report, const Rpc& rpc, const RpcMessage& message, bool is_call,
                  std::size_t inline_bytes);
void check_call_chunks(FindingReport& report, const Rpc& rpc, SegmentTable& memory);
// The reply's lists against the call's (RFC 8166 §4.3.2), and against the traffic.
void check_reply_chunks(FindingReport& report, const Rpc& rpc, SegmentTable& memory,
                        CallNumber call);
void check_read_traffic(FindingReport& report, const Rpc& rpc, SegmentTable& memory,
                        CallNumber call);
// What decoding and putting together brought to light.
void check_messages(FindingReport& report, const Rpc& rpc);
void check_exchange(FindingReport& report, const Rpc& rpc, const ExchangeFaults& faults);

}  // namespace weft::capture
