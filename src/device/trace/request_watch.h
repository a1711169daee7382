// What follows the requests of a queue pair from post to completion: the trace of the device, and
// the latencies of `weft top`. See observation.h.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "device/completion/completion_queue.h"
#include "device/trace/queue_pair_trace.h"
#include "device/trace/request_latencies.h"

namespace weft::device {

// The queue pair's lock covers it. The functions are those of QueuePairTrace.
class RequestWatch {
 public:
  RequestWatch() = default;
  explicit RequestWatch(std::unique_ptr<QueuePairTrace> trace) : trace_(std::move(trace)) {}

  [[nodiscard]] bool has_trace() const { return trace_ != nullptr; }
  // Null unless they are taken.
  [[nodiscard]] const RequestLatencies* latencies() const {
    return latencies_ ? &*latencies_ : nullptr;
  }
  // `outstanding`: see RequestLatencies.
  void take_latencies(std::uint64_t outstanding) { latencies_.emplace(outstanding); }
  void leave_latencies() { latencies_.reset(); }

  void posted(const ibv_send_wr& request, std::uint64_t began_ns) {
    if (latencies_) latencies_->posted(request.opcode, began_ns);
    if (trace_) trace_->posted(request, began_ns);
  }
  void posted(const ibv_recv_wr& request, std::uint64_t began_ns) {
    if (trace_) trace_->posted(request, began_ns);
  }
  void connection_began(std::string here, std::string there) {
    if (trace_) trace_->connection_began(std::move(here), std::move(there));
  }
  void sent(std::uint64_t requests) {
    if (trace_) trace_->sent(requests);
  }
  void executed(std::uint64_t requests) {
    if (trace_) trace_->executed(requests);
  }
  void carried_out() {
    if (trace_) trace_->carried_out();
  }
  void placed(QueuePairTrace::Kind kind) {
    if (trace_) trace_->placed(kind);
  }
  void waits(QueuePairTrace::Wait cause, bool waits) {
    if (latencies_ && cause == QueuePairTrace::Wait::room) latencies_->waits_for_room(waits);
    if (trace_) trace_->waits(cause, waits);
  }
  [[nodiscard]] std::uint64_t completed(const Delivery& delivery) {
    if (latencies_ && !delivery.receive) {
      latencies_->completed(delivery.covered, delivery.completion.status == IBV_WC_SUCCESS,
                            TraceFile::now_ns());
    }
    return trace_ ? trace_->completed(delivery) : 0;
  }
  void done_silently(std::uint64_t requests) {
    if (latencies_) latencies_->forget(requests);
    if (trace_) trace_->done_silently(requests);
  }
  void dropped() {
    if (latencies_) latencies_->forget_all();
    if (trace_) trace_->dropped();
  }

 private:
  std::unique_ptr<QueuePairTrace> trace_;
  std::optional<RequestLatencies> latencies_;
};

}  // namespace weft::device
