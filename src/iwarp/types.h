// The vocabulary of the protocol core: work in, completions out. Values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::iwarp {

// A piece of registered local memory, as the application named it.
struct LocalSlice {
  std::uint64_t address = 0;
  std::uint32_t length_bytes = 0;
  std::uint32_t lkey = 0;
};

enum class Operation : std::uint8_t {
  send,
  send_invalidate,
  send_immediate,  // to a peer that takes announcements: see Receiver
  write,
  write_immediate,
  read,
  compare_swap,
  fetch_add,
  atomic_write,  // 8 bytes at once, behind everything before: RFC 7306's swap, compared to nothing
  // Of this side alone, in their turn: see Host::carry_out_local().
  bind_window,
  local_invalidate,
};

[[nodiscard]] constexpr bool is_atomic(Operation operation) {
  return operation >= Operation::compare_swap && operation <= Operation::atomic_write;
}

// Nothing is sent: the rights to this side's own memory change.
[[nodiscard]] constexpr bool is_local(Operation operation) {
  return operation >= Operation::bind_window;
}

// The peer answers with a message of its own.
[[nodiscard]] constexpr bool is_answered(Operation operation) {
  return operation == Operation::read || is_atomic(operation);
}

// The answer's data go into the memory that the request names; of all others they come from there.
[[nodiscard]] constexpr bool fetches(Operation operation) {
  return is_answered(operation) && operation != Operation::atomic_write;
}

// The peer needs a receive for it.
[[nodiscard]] constexpr bool takes_receive(Operation operation) {
  return operation < Operation::write || operation == Operation::write_immediate;
}

// One entry for the send queue. The slices are copied when it is posted; the memory they name must
// live until the completion, unless `inline_data` copied that as well.
struct WorkRequest {
  std::uint64_t wr_id = 0;
  Operation operation = Operation::send;
  bool signaled = true;
  bool solicited = false;
  bool fence = false;        // wait for earlier reads and atomics
  bool inline_data = false;  // slices hold plain addresses; copied now, lkeys not looked at
  std::span<const LocalSlice> slices{};
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;            // write, read, atomics; send_invalidate: the one to invalidate
  std::uint32_t immediate_be = 0;    // as the application gave it, in network order
  std::uint64_t compare_or_add = 0;  // atomics
  std::uint64_t swap = 0;
};

// How a request ended, in the terms of verbs' completion statuses.
enum class Status : std::uint8_t {
  success,
  local_length,
  local_protection,
  local_operation,
  window_bind,
  flushed,
  remote_access,
  remote_invalid_request,
  remote_operation,
  retry_exceeded,
  rnr_retry_exceeded,
  bad_response,
};

struct SendCompletion {
  std::uint64_t wr_id = 0;
  Operation operation = Operation::send;
  Status status = Status::success;
  bool signaled = true;
  std::uint32_t length_bytes = 0;
  // Requests that it tells of: this one, and those before it that completed in silence.
  std::uint32_t covered = 1;
};

struct ReceiveCompletion {
  std::uint64_t wr_id = 0;
  Status status = Status::success;
  std::uint32_t length_bytes = 0;  // of the Send, or of the Write before an immediate
  bool solicited = false;
  bool from_write = false;  // a write with immediate
  bool has_immediate = false;
  std::uint32_t immediate_be = 0;
  bool has_invalidated = false;
  std::uint32_t invalidated_rkey = 0;
};

// What a remote peer may do with a region.
enum class RemoteRight : std::uint8_t { write, read, atomic };

// Why memory may not be touched. The order is that of the error codes of RFC 5040 §4.8.
enum class Fault : std::uint8_t { none, invalid_stag, bounds, access, foreign_domain, wrap };

// The answer to "where is this memory": an address, or why not.
struct Memory {
  std::byte* at = nullptr;
  Fault fault = Fault::none;
};

// Limits of one connection's queues, fixed when the queue pair is made.
struct QueueLimits {
  std::uint32_t send_requests = 128;
  std::uint32_t send_slices = 4;     // per request
  std::uint32_t receive_slices = 4;  // per request
  std::uint32_t inline_bytes = 256;  // per request
};

// Why a connection stopped carrying traffic.
enum class EndReason : std::uint8_t {
  none,
  peer_closed,      // FIN or RST without a Terminate
  peer_terminated,  // a Terminate arrived
  terminated,       // we sent a Terminate
  local_error,      // one of our own requests named memory it may not use
  local_close,      // asked for from this side
};

}  // namespace weft::iwarp
