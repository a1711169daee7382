// Checks the rules for RPC-over-RDMA headers and chunk lists; each violation becomes a finding.
#pragma once

#include <cstddef>

#include "capture/findings/rpc_findings.h"
#include "capture/rpc/rpc_exchange.h"
#include "weft/capture/segment_table.hpp"

namespace weft::capture {

// Checks a header that was just received. The inline part of its message has `inline_bytes` bytes.
void check_header(FindingReport& report, const Rpc& rpc, const RpcMessage& message, bool is_call,
                  std::size_t inline_bytes);
// Checks the segments of a call. `memory` must not contain them yet.
void check_call_chunks(FindingReport& report, const Rpc& rpc, SegmentTable& memory);
// Compares the reply's lists with the call's (RFC 8166 §4.3.2), and with the traffic.
void check_reply_chunks(FindingReport& report, const Rpc& rpc, SegmentTable& memory,
                        CallNumber call);
// What the capture lacks of a connection.
struct CaptureLacks {
  bool anything = false;
  bool packets = false;   // not only what the snap length has cut
  bool requests = false;  // of Read responses that it has
  bool order = false;     // packets are later than they were sent
};
// Checks that the Read requests cover each read chunk in order and completely. If the capture lacks
// something, a request may be part of that.
void check_read_traffic(FindingReport& report, const Rpc& rpc, SegmentTable& memory,
                        CallNumber call, CaptureLacks lacks);
// Report what decoding and reassembly have found.
void check_messages(FindingReport& report, const Rpc& rpc, CaptureLacks lacks);
void check_exchange(FindingReport& report, const Rpc& rpc, const ExchangeFaults& faults);

}  // namespace weft::capture
