// Findings about senders that waited for credits, on connections whose credits can be seen:
// InfiniBand's end-to-end credits in acknowledgements, Weft's messages and Weft's streams. (Those
// of RPC-over-RDMA are RpcTracker's. iWARP has none of its own.)
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

// A wait begins with the message that took the last credit and ends with what gave one back. When
// the next message was ready is not on the wire: so waits are upper bounds, and only those count
// after which the sender went on within the time that it had waited. After a gap in the capture
// nothing more is said of a connection, for then its credits are not known any more.
//
// One thread at a time.
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
  // The trace is at its end: one finding for each side that waited.
  void finish();

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
