// One operation of a program: a Send, Write, Read, atomic or Immediate Data message, with its
// times.
#pragma once

#include <cstdint>

#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

struct Operation {
  enum class Kind : std::uint8_t { send, write, read, fetch_add, compare_swap, atomic, immediate };
  enum class Outcome : std::uint8_t {
    complete,    // all of its packets were captured, and those of the response if it has one
    incomplete,  // at least missing_bytes of it were not captured
    unanswered,  // a Read or atomic without a (full) response
    refused,     // the other side sent a NAK or Terminate for it
  };

  std::uint64_t number = 0;  // position in the order of the reports, from 1
  ConnectionId connection = 0;
  Side side = Side::a;  // the requester
  Kind kind = Kind::send;
  SendKind send_kind = SendKind::plain;
  Outcome outcome = Outcome::complete;
  std::uint64_t message = 0;          // message number of the transport
  Stamp start;                        // frame with its first part or its request
  Stamp end;                          // frame with its last part or its response
  std::uint64_t bytes = 0;            // payload on the wire; for a Read, the bytes of the response
  std::uint64_t missing_bytes = 0;    // those of `bytes` in packets that were not captured
  std::uint64_t cut_bytes = 0;        // those that the snap length cut from captured packets
  std::uint64_t requested_bytes = 0;  // length that a Read requests
  // The remote memory of Writes, Reads and atomics.
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  bool has_immediate = false;
  std::uint32_t immediate = 0;        // in host order
  std::uint32_t invalidated_key = 0;  // key that a Send with Invalidate invalidates
  std::uint64_t original = 0;         // value before an atomic
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  bool repeated = false;        // the request of a Read or atomic was sent again
  std::uint32_t not_ready = 0;  // number of RNR NAKs; it was sent again after each
  // Sends, Writes and Immediate Data: when the transport of the other side confirmed the last part,
  // by a TCP acknowledgement on iWARP, by the responder's acknowledgement on InfiniBand. Reads and
  // atomics: whether the last part of the response was captured, at `end`.
  bool confirmed = false;
  Stamp confirmation;

  // Returns whether the operation asks for a response with data: whether it is a Read or an atomic.
  [[nodiscard]] bool is_request() const {
    return kind == Kind::read || kind == Kind::fetch_add || kind == Kind::compare_swap ||
           kind == Kind::atomic;
  }
  // Returns the time from the first frame to the known end, or -1 if the end was not captured.
  [[nodiscard]] std::int64_t latency_ns() const {
    return confirmed ? confirmation.time_ns - start.time_ns : -1;
  }
};

// Returns the name of the enumerator, such as "fetch_add". The text is in static storage.
[[nodiscard]] WEFT_API const char* to_string(Operation::Kind kind);
// Returns the name of the enumerator, such as "unanswered". The text is in static storage.
[[nodiscard]] WEFT_API const char* to_string(Operation::Outcome outcome);

class OperationSink {
 public:
  virtual ~OperationSink() = default;
  // Receives operations in the order in which they ended. `operation` is valid during the call
  // only.
  virtual void on_operation(const Operation& operation) = 0;
};

}  // namespace weft::capture
