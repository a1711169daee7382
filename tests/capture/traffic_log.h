// Keeps the calls of a TrafficSink: whole messages, memory as it was written and read, losses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "support/fpdu.h"
#include "weft/capture/operation.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture::test {

class TrafficLog final : public TrafficSink {
 public:
  // A Send, or the answer to a Read: its bytes, and whether they are all there.
  struct Message {
    std::vector<std::byte> bytes;
    std::vector<bool> have;
    bool first_seen = true;
    bool last_seen = false;
    SendKind kind = SendKind::plain;
    std::uint32_t invalidated_key = 0;
    bool has_immediate = false;
    std::uint32_t immediate = 0;
    std::uint32_t key = 0;
    std::uint64_t address = 0;

    [[nodiscard]] bool whole() const;
    void place(std::uint64_t offset, Bytes part, std::uint64_t missing_bytes);
  };
  using MessageKey = std::tuple<ConnectionId, Side, std::uint64_t>;

  void on_send(const Origin& origin, const SendPart& part) override;
  void on_write(const Origin& origin, const WritePart& part) override;
  void on_read_request(const Origin& origin, const ReadRequest& request) override;
  void on_read_part(const Origin& origin, const ReadPart& part) override;
  void on_atomic_request(const Origin& origin, const AtomicRequest& request) override;
  void on_atomic_answer(const Origin& origin, const AtomicAnswer& answer) override;
  void on_immediate(const Origin& origin, const ImmediateMessage& message) override;
  void on_refusal(const Origin& origin, const Refusal& refusal) override;
  void on_repeat(const Origin& origin, std::uint64_t wire_bytes) override;
  void on_gap(const Origin& origin, const Gap& gap) override;
  void on_violation(const Origin& origin, const Violation& violation) override;
  void on_congestion(const Origin& origin, Congestion congestion) override;
  void on_end(const Origin& origin, bool reset) override;

  std::map<MessageKey, Message> sends;
  std::map<MessageKey, Message> writes;  // numbered by the transport
  std::map<MessageKey, Message> reads;   // by requester and request
  std::uint64_t unknown_answers = 0;
  std::vector<AtomicRequest> atomic_requests;
  std::vector<std::uint64_t> atomic_answers;
  std::vector<weft::test::Content> immediates;
  std::vector<Refusal> refusals;
  std::vector<Violation> violations;
  std::uint64_t repeated_bytes = 0;
  std::uint64_t lost_bytes = 0;
  std::uint64_t lost_packets = 0;
  std::uint64_t repeated_requests = 0;
  std::uint64_t congestion_marked = 0;
  std::uint64_t congestion_notified = 0;
  std::uint64_t ends = 0;
  std::uint64_t resets = 0;
};

class OperationLog final : public OperationSink {
 public:
  void on_operation(const Operation& operation) override { operations.push_back(operation); }

  [[nodiscard]] std::size_t count(Operation::Kind kind) const;

  std::vector<Operation> operations;
};

// Whether each byte is the one that a conversation of known bytes has at this place. Fails the test
// where not.
void expect_known_bytes(const TrafficLog& log);

}  // namespace weft::capture::test
