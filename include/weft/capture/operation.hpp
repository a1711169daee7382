// What a program did: one Send, Write, Read, atomic or Immediate Data, whole, with its times.
#pragma once

#include <cstdint>

#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

struct Operation {
  enum class Kind : std::uint8_t { send, write, read, fetch_add, compare_swap, atomic, immediate };
  enum class Outcome : std::uint8_t {
    complete,    // all of it was seen, and the answer where there is one
    incomplete,  // parts were not captured: missing_bytes of them at least
    unanswered,  // a Read or atomic without (all of) its answer
    refused,     // the other side said why it would not
  };

  std::uint64_t number = 0;  // in the order of this list, from 1
  ConnectionId connection = 0;
  Side side = Side::a;  // who asked for it
  Kind kind = Kind::send;
  SendKind send_kind = SendKind::plain;
  Outcome outcome = Outcome::complete;
  std::uint64_t message = 0;          // the transport's number for it
  Stamp start;                        // of the frame with its first part or its request
  Stamp end;                          // of the frame with its last part or its answer
  std::uint64_t bytes = 0;            // of payload on the wire; of a Read: that were answered
  std::uint64_t missing_bytes = 0;    // of those, not captured
  std::uint64_t requested_bytes = 0;  // by a Read
  // The remote memory: of Writes, Reads and atomics.
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  bool has_immediate = false;
  std::uint32_t immediate = 0;        // in host order
  std::uint32_t invalidated_key = 0;  // of a Send that invalidates
  std::uint64_t original = 0;         // of an atomic: the value before
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  bool repeated = false;        // a Read or atomic that was asked for again
  std::uint32_t not_ready = 0;  // RNR NAKs that it met; it was sent again after each
  // Of Sends, Writes and Immediate Data, when the other side's transport confirmed the last part:
  // TCP's acknowledgement on iWARP, the responder's on InfiniBand.
  bool confirmed = false;
  Stamp confirmation;

  [[nodiscard]] bool is_request() const {
    return kind == Kind::read || kind == Kind::fetch_add || kind == Kind::compare_swap ||
           kind == Kind::atomic;
  }
  // From the first frame until it was known to be done; -1: that was never seen.
  [[nodiscard]] std::int64_t latency_ns() const {
    if (is_request()) {
      return outcome == Outcome::complete ? end.time_ns - start.time_ns : -1;
    }
    return confirmed ? confirmation.time_ns - start.time_ns : -1;
  }
};

[[nodiscard]] WEFT_API const char* to_string(Operation::Kind kind);
[[nodiscard]] WEFT_API const char* to_string(Operation::Outcome outcome);

class OperationSink {
 public:
  virtual ~OperationSink() = default;
  // In the order in which they were done with. Valid during the call only.
  virtual void on_operation(const Operation& operation) = 0;
};

}  // namespace weft::capture
