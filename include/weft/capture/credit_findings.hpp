// Reports senders that waited for credits, on connections with visible credits: the end-to-end
// credits in InfiniBand's acknowledgements, and the credits of Weft's messages and Weft's streams.
// RpcTracker reports those of RPC-over-RDMA. iWARP itself has no credits.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "weft/capture/connection.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

namespace finding {
inline constexpr std::string_view credit_stall = "credit-stall";
}  // namespace finding

// Finds waits for credits. A wait begins with the message that used the last credit and ends with
// the packet that granted a new one. The wire does not show when the next message was ready, so a
// wait is an upper bound; it counts only if the sender continued within a time no longer than the
// wait. After a gap in the capture the credits of a connection are unknown, and nothing more is
// reported for it.
//
// Only one thread at a time may use it.
class WEFT_API CreditFindings final : public TrafficSink {
 public:
  // Both must outlive this.
  CreditFindings(const ConnectionTable& connections, FindingSink& sink);
  CreditFindings(const CreditFindings&) = delete;
  CreditFindings& operator=(const CreditFindings&) = delete;
  ~CreditFindings() override;

  void on_send(const Origin& origin, const SendPart& part) override;
  void on_write(const Origin& origin, const WritePart& part) override;
  void on_read_request(const Origin& origin, const ReadRequest& request) override;
  void on_immediate(const Origin& origin, const ImmediateMessage& message) override;
  void on_atomic_request(const Origin& origin, const AtomicRequest& request) override;
  void on_credits(const Origin& origin, const CreditUpdate& update) override;
  void on_gap(const Origin& origin, const Gap& gap) override;
  void on_close(ConnectionId connection) override;
  void on_forget(ConnectionId connection) override;
  // Ends the trace: reports one finding for each side that waited.
  void finish();
  // Reports to `sink` what was collected so far, and keeps it.
  void report_so_far(FindingSink& sink);

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
