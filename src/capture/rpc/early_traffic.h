// What belongs to a call that was not captured yet. A capture that is out of order may hold the
// Reads, the Writes and the reply of an RPC before its call; they wait here until the call comes or
// cannot come any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "weft/capture/budget.hpp"
#include "weft/capture/rpc.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

// A reply whose header was decoded. `body` is the part of the RPC message that came inline.
struct ReplyMessage {
  std::uint32_t xid = 0;
  std::optional<wire::RpcRdmaError> error;
  RpcMessage message;
  Assembled body;
};

struct EarlyEvent {
  Origin origin;
  std::variant<WritePart, ReadRequest, ReadPart, ReplyMessage> what;
  std::vector<std::byte> bytes;  // the bytes of a part

  // Returns the side that has sent the call.
  [[nodiscard]] Side caller() const {
    return std::holds_alternative<ReadPart>(what) ? origin.side : other(origin.side);
  }
  [[nodiscard]] const ReplyMessage* reply() const { return std::get_if<ReplyMessage>(&what); }
  [[nodiscard]] std::size_t charged() const {
    const ReplyMessage* const held = reply();
    return sizeof(EarlyEvent) + bytes.size() + (held == nullptr ? 0 : held->body.size());
  }
};

// The early events of one connection, in the order in which their senders sent them.
class EarlyTraffic {
 public:
  static constexpr std::size_t most_events = 1024;

  // `budget` must outlive this.
  explicit EarlyTraffic(Budget& budget) : budget_(&budget) {}
  EarlyTraffic(const EarlyTraffic&) = delete;
  EarlyTraffic& operator=(const EarlyTraffic&) = delete;
  ~EarlyTraffic() {
    for (const EarlyEvent& event : events_) budget_->give_back(event.charged());
  }

  // Returns false if there is no room; the event is not taken then.
  [[nodiscard]] bool add(EarlyEvent&& event) {
    if (events_.size() == most_events || !budget_->take(event.charged())) return false;
    events_.push_back(std::move(event));
    return true;
  }
  [[nodiscard]] bool empty() const { return events_.empty(); }
  [[nodiscard]] const std::vector<EarlyEvent>& events() const { return events_; }
  // Removes the events for which `chosen` returns true, and returns them in their order.
  [[nodiscard]] std::vector<EarlyEvent> take(const auto& chosen) {
    std::vector<EarlyEvent> taken;
    std::vector<EarlyEvent> left;
    for (EarlyEvent& event : events_) {
      const bool take_it = chosen(std::as_const(event));
      if (take_it) budget_->give_back(event.charged());
      (take_it ? taken : left).push_back(std::move(event));
    }
    events_.swap(left);
    return taken;
  }

 private:
  Budget* budget_;
  std::vector<EarlyEvent> events_;
};

}  // namespace weft::capture
